# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where a service that is deployed may be: one place, with the keys of its backend."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model import validators
from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError
from ansible_collections.muster.training.plugins.module_utils._model.service_deploy import (
    Deploy,
    PodsSetting,
    check_deploy,
)


def parse(**values: t.Any) -> Deploy:
    return check_deploy(validators.section(Deploy)(values, "deploy"), "deploy")


def test_a_host_and_a_namespace_are_places() -> None:
    assert parse(host="a", port=9000, address="10.0.0.1").port == 9000
    assert parse(namespace="storage", node="n", size="1Ti", claim="c").claim == "c"


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({}, "does not say where the service runs"),
        ({"host": "a", "namespace": "b"}, "names a host and a namespace"),
        ({"host": "a", "size": "1Gi"}, "deploy.size: is for services in clusters only"),
        ({"namespace": "a", "address": "x"}, "deploy.address: is for services on hosts only"),
        ({"host": "a", "port": 80}, "port"),
        ({"host": "a", "ports": 80}, "Did you mean"),
        ({"host": "a", "database": {"from": "env", "keys": {"password": "X"}}}, "database.keys.password: is not part"),
        ({"host": "a", "database": {"from": "vault"}}, "database.path: is required with from: vault"),
    ],
)
def test_other_places_are_refused(values: t.Any, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        parse(**values)


def test_pods_need_a_namespace_and_an_image() -> None:
    assert validators.section(PodsSetting)({"namespace": "n", "image": "i"}, "pods").pull_secrets == ()
    with pytest.raises(InputError, match="image"):
        validators.section(PodsSetting)({"namespace": "n"}, "pods")


@pytest.mark.parametrize("key", ["database", "proxy", "clients"])
def test_pods_of_a_check_have_no_keys_of_a_service(key: str) -> None:
    with pytest.raises(InputError, match=rf"pods\.{key}"):
        validators.section(PodsSetting)({"namespace": "n", "image": "i", key: "x"}, "pods")
