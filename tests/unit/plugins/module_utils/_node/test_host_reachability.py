# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which addresses answer: a refused connection counts as an answer, silence does not."""

from __future__ import annotations

import contextlib
import socket

import pytest

from ansible_collections.muster.training.plugins.module_utils._node import facts_host, host_reachability


def test_open_and_closed_ports_answer_and_results_keep_their_order() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_server(("127.0.0.1", 0)) as other:
        closed = other.getsockname()[1]
        other.close()
        targets = [("127.0.0.1", closed), ("127.0.0.1", server.getsockname()[1]), ("not an address", 1)]
        results = host_reachability.check_addresses(targets, 2.0)
    assert [result["port"] for result in results] == [closed, targets[1][1], 1]
    assert [result["ok"] for result in results] == [True, True, False]
    assert results[0]["problem"] is None and results[0]["ms"] >= 0 and results[2]["problem"]


def test_silence_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    silent, peer = socket.socketpair()
    silent.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        # With a full buffer it never becomes writable, as a connection without an answer.
        while True:
            silent.send(b"x" * 65536)
    monkeypatch.setattr(host_reachability, "_open_connection", lambda _address, _port: silent)
    with peer:
        result = host_reachability.check_addresses([("192.0.2.1", 9)], 0.05)[0]
    assert (result["ok"], result["problem"], result["ms"]) == (False, "no answer", None)


@pytest.mark.parametrize(("running", "expected"), [({}, {}), ({"tailscaled": "7"}, {"100.64.0.2": "direct"})])
def test_mesh_paths_are_read_where_tailscale_runs(
    running: dict[str, str], expected: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(facts_host, "list_processes", lambda _source: running)
    monkeypatch.setattr(facts_host, "read_tailscale", lambda *_args: {"peers": {"100.64.0.2": "direct"}})
    assert host_reachability.read_tailscale_paths(["100.64.0.2"]) == expected
    assert host_reachability.read_tailscale_paths([]) == {}
