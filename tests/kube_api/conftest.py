# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One real API server for all tests of this folder; each test has a namespace of its own."""

from __future__ import annotations

import itertools
import pathlib
import typing as t

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._kube.api.client import Client
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.connect import connect
from ansible_collections.muster.training.tests.support import kube_api

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def api(tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[kube_api.ApiServer]:
    kube_api.require()
    with kube_api.ApiServer(tmp_path_factory.mktemp("api")) as server:
        yield server


@pytest.fixture
def client(api: kube_api.ApiServer) -> Client:
    return connect({"kubeconfig": str(api.kubeconfig)})


@pytest.fixture
def namespace(client: Client) -> str:
    name = f"test-{next(_numbers)}"
    client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    return name


@pytest.fixture(scope="session")
def awkward() -> str:
    return (pathlib.Path(__file__).parents[1] / "fixtures" / "kube" / "awkward.yaml").read_text()
