# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests whether addresses of other nodes answer from here: all at once, in one or two seconds.

No program needs to listen there: a refused connection counts as an answer; silence and routing errors do not.
"""

from __future__ import annotations

import errno
import select
import socket
import time
import typing as t

Result = dict[str, t.Any]
_ANSWERS = (0, errno.ECONNREFUSED, errno.ECONNRESET)


def check_addresses(targets: t.Sequence[t.Sequence[t.Any]], seconds: float) -> list[Result]:
    """Return ``{address, port, ok, problem, ms}`` for each (address, port), in order.

    :param seconds: how long to wait for all of them together.
    """
    results: list[Result] = []
    pending: dict[int, tuple[socket.socket, Result]] = {}
    began = time.monotonic()
    for address, port in targets:
        result: Result = {"address": str(address), "port": int(port), "ok": False, "problem": "no answer", "ms": None}
        results.append(result)
        try:
            connection = _open_connection(str(address), int(port))
        except OSError as exc:
            _set_result(result, exc.errno or errno.EINVAL, began)
            continue
        pending[connection.fileno()] = (connection, result)
    poller = select.poll()
    for descriptor in pending:
        poller.register(descriptor, select.POLLOUT | select.POLLERR | select.POLLHUP)
    while pending and (left := began + seconds - time.monotonic()) > 0:
        for descriptor, _events in poller.poll(left * 1000):
            connection, result = pending.pop(descriptor)
            poller.unregister(descriptor)
            _set_result(result, connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR), began)
            connection.close()
    for connection, _unused in pending.values():
        connection.close()
    return results


def read_tailscale_paths(addresses: t.Sequence[str]) -> dict[str, str]:
    """Return mesh address -> ``direct``, ``relayed`` or ``idle`` where tailscale knows it; empty without tailscale."""
    from . import facts_host, facts_source

    source = facts_source.FactsSource({})
    running = facts_host.list_processes(source)
    if not addresses or "tailscaled" not in running:
        return {}
    facts = facts_host.read_tailscale(source, running, True, list(addresses))
    return {str(key): str(value) for key, value in facts["peers"].items()}


def _open_connection(address: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    connection = socket.socket(family, socket.SOCK_STREAM)
    connection.setblocking(False)
    code = connection.connect_ex((address, port))
    if code not in (0, errno.EINPROGRESS):
        connection.close()
        raise OSError(code, "no connection")
    return connection


def _set_result(result: Result, code: int, began: float) -> None:
    result["ok"] = code in _ANSWERS
    result["problem"] = None if result["ok"] else errno.errorcode.get(code, str(code)).lower()
    result["ms"] = round(1000 * (time.monotonic() - began), 1)
