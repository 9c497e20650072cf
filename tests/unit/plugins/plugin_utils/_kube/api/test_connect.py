# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Options to a client: namespace, cluster id, patience, and a certificate that is replaced."""

from __future__ import annotations

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError, RefusedError
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.connect import PATIENCE_S, connect
from ansible_collections.muster.training.tests.support.scripted_client import scripted_client
from ansible_collections.muster.training.tests.support.scripted_http import Call, Script

CLUSTER = Call("GET", "/api/v1/namespaces/kube-system", answer={"kind": "Namespace", "metadata": {"uid": "u-1"}})


def test_nothing_is_sent_until_a_call() -> None:
    with Script() as script:
        client = scripted_client(script)
    assert (client.namespace, client.requests, client.transport.patience_s) == ("default", 0, PATIENCE_S)


def test_another_cluster_than_the_expected_one_is_refused() -> None:
    with Script(CLUSTER) as script:
        scripted_client(script, cluster_id="u-1")
    with Script(CLUSTER) as script, pytest.raises(RefusedError, match=r"another cluster \(u-1\) than expected \(u-2\)"):
        scripted_client(script, cluster_id="u-2")


@pytest.mark.parametrize(("given", "seconds"), [(5, 5.0), ("7.5", 7.5), (None, PATIENCE_S)])
def test_patience_is_an_option(given: object, seconds: float) -> None:
    with Script() as script:
        assert scripted_client(script, patience_s=given).transport.patience_s == seconds


def test_an_address_that_is_none_is_refused_at_once() -> None:
    with pytest.raises(InputError, match="host"):
        connect({"host": "ftp://kube.example", "token": "t-0123456789"}, environ={})
