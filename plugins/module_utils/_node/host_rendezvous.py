# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Waiting until the nodes of a gang can reach their rendezvous, before a rank is started."""

from __future__ import annotations

import pathlib
import socket
import time
import typing as t

from . import host_preflight, host_units


def reach_gang(request: t.Mapping[str, t.Any]) -> str | None:
    """Wait until the rendezvous of the gang can be reached; return what is wrong, None when nothing is.

    ``store``: this node's own store must run. ``meet``: every other node must reach this one's port. ``reach``: the
    first node's port must be reached from here.
    """
    problem = _wait_for_store(request["store"]) if request.get("store") else None
    if not problem and request.get("meet"):
        problem = _wait_for_peers(**request["meet"])
    if not problem and request.get("reach"):
        problem = _reach_first_node(**request["reach"])
    return problem


def _wait_for_store(spec: t.Mapping[str, t.Any]) -> str | None:
    end = time.monotonic() + 10
    status = host_units.unit_status(pathlib.Path(spec["folder"]))
    while status["exit"] is None and time.monotonic() < end:
        if status["alive"] and status["state"] not in (None, "waiting"):
            break
        time.sleep(0.01)
        status = host_units.unit_status(pathlib.Path(spec["folder"]))
    if status["exit"] is not None or status["state"] != "running" or not status["alive"]:
        return status["detail"] or "the rendezvous store did not start"
    return None


def _reach_first_node(host: str, port: int, seconds: float) -> str | None:
    end = time.monotonic() + seconds
    while True:
        try:
            socket.create_connection((host, port), timeout=2).close()
            return None
        except OSError as exc:
            if time.monotonic() > end:
                return f"cannot reach the first node at {host}:{port} ({exc.strerror or exc})"
        time.sleep(0.02)


def _wait_for_peers(host: str, port: int, peers: int, seconds: float) -> str | None:
    """Listen in place of a rendezvous store on a first node without one, until every other node has connected once."""
    busy = host_preflight.port_problem(host, port)
    if busy:
        return f"cannot listen on {host}:{port}: {busy['reason']}"
    end = time.monotonic() + seconds
    with socket.create_server((host, port), backlog=1024, reuse_port=False) as server:
        for connected in range(peers):
            server.settimeout(max(0.01, end - time.monotonic()))
            try:
                server.accept()[0].close()
            except TimeoutError:
                return f"only {connected} of {peers} other nodes could reach {host}:{port}"
    return None
