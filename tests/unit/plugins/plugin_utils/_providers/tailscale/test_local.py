# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Devices as the Tailscale client on this machine lists them."""

from __future__ import annotations

import json
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import TransportError
from ansible_collections.muster.training.plugins.plugin_utils._providers.tailscale import local
from ansible_collections.muster.training.tests.support.listings import listing


def test_local_status() -> None:
    found = local.list_devices("tailscale", lambda _binary: json.dumps(listing("tailscale_status")).encode())
    assert [item["nodeId"] for item in found] == ["nSELFCNTRL", "nPEER1CNTRL", "nPEER2CNTRL"]
    assert [item["path"] for item in found] == [None, "direct", None]
    assert found[0]["isSelf"] is True and found[1]["name"] == "lambda-01.tail1234.ts.net"
    assert found[2]["expired"] is True and found[2]["user"] == "tagged-devices"


def test_local_relayed_peer_and_no_peers() -> None:
    status = listing("tailscale_status")
    peer = next(iter(status["Peer"].values()))
    peer.update(CurAddr="", Active=True)
    assert local.parse_status(status)[1]["path"] == "relayed"
    assert len(local.parse_status({**status, "Peer": None, "User": None})) == 1


@pytest.mark.parametrize(
    ("change", "problem"),
    [({"BackendState": "NeedsLogin"}, "NeedsLogin"), ({"BackendState": None}, "unknown"), ({"Self": None}, "no Self"),
     ({"Peer": []}, "no Self or Peer"), ({"Self": {"ID": ""}}, "without 'nodeId'")],
)  # fmt: skip
def test_local_client_that_is_not_connected(change: dict[str, t.Any], problem: str) -> None:
    with pytest.raises(TransportError, match=problem):
        local.parse_status({**listing("tailscale_status"), **change})


def test_local_program_is_missing_or_broken() -> None:
    with pytest.raises(TransportError, match="no program"):
        local.list_devices("/nonexistent/tailscale")
    with pytest.raises(TransportError, match="exit code 1"):
        local.list_devices("/bin/false")
    with pytest.raises(TransportError, match="not JSON"):
        local.list_devices("/bin/echo")
