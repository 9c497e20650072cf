# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Datagrams between machines that all listen and send at once; here each is a thread with a port of its own."""

from __future__ import annotations

import concurrent.futures
import json
import socket
import time
import typing as t

from ansible_collections.muster.training.plugins.module_utils._node import host_vxlan


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket(type=socket.SOCK_DGRAM) for _unused in range(count)]
    for item in sockets:
        item.bind(("127.0.0.1", 0))
    ports = [item.getsockname()[1] for item in sockets]
    for item in sockets:
        item.close()
    return ports


def exchange(
    names: str, wait_s: float, delays: t.Mapping[str, float] | None = None, run: str = "r"
) -> dict[str, t.Any]:
    ports = dict(zip(names, free_ports(len(names)), strict=True))

    def one(name: str) -> dict[str, t.Any]:
        time.sleep((delays or {}).get(name, 0))
        peers = {peer: "127.0.0.1" for peer in names if peer != name}
        own_run = f"{run}-{name}" if run == "own" else run
        request = {"own": name, "peers": peers, "wait_s": wait_s, "run": own_run, "port": ports[name], "ports": ports}
        return host_vxlan.answer(request)

    with concurrent.futures.ThreadPoolExecutor(len(names)) as pool:
        return dict(zip(names, pool.map(one, names), strict=True))


def test_all_hear_each_other_also_one_that_begins_later() -> None:
    began = time.monotonic()
    found = exchange("abc", 20, {"c": 0.6})
    assert found == {name: {"heard": sorted(set("abc") - {name}), "busy": False} for name in "abc"}
    assert time.monotonic() - began < 10


def test_what_is_not_heard_ends_in_time() -> None:
    began = time.monotonic()
    assert exchange("ab", 0.5, run="own") == {name: {"heard": [], "busy": False} for name in "ab"}
    assert time.monotonic() - began < 10


def test_a_port_that_is_taken_says_so() -> None:
    with socket.socket(type=socket.SOCK_DGRAM) as taken:
        taken.bind(("", 0))
        request = {"own": "a", "peers": {"b": "127.0.0.1"}, "wait_s": 5, "run": "r", "port": taken.getsockname()[1]}
        assert host_vxlan.answer(request) == {"heard": [], "busy": True}


def test_datagrams_of_others_are_not_counted() -> None:
    with socket.socket(type=socket.SOCK_DGRAM) as one, socket.socket(type=socket.SOCK_DGRAM) as other:
        one.bind(("127.0.0.1", 0))
        for data in (b"\xff", b"[]", b"{}", json.dumps({"run": "x", "from": "a", "heard": []}).encode()):
            other.sendto(data, one.getsockname())
            assert host_vxlan._read(one, "r") == ("", [])
        other.sendto(json.dumps({"run": "r", "from": "a", "heard": ["b"]}).encode(), one.getsockname())
        assert host_vxlan._read(one, "r") == ("a", ["b"])
