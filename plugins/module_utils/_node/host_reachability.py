# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether addresses of other nodes answer from here: all at once, in one or two seconds.

Nothing needs to listen there: a refused connection is an answer too. Only silence and an error of the route are not.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import errno
import select
import socket
import time
import typing as t

Dict = dict[str, t.Any]
_ANSWERS = (0, errno.ECONNREFUSED, errno.ECONNRESET)


def test_addresses(targets: t.Sequence[t.Sequence[t.Any]], seconds: float) -> list[Dict]:
    """Return ``{address, port, ok, problem, ms}`` for each (address, port), in order.

    :param seconds: how long to wait for all of them together.
    """
    found: list[Dict] = []
    open_: dict[int, tuple[socket.socket, Dict]] = {}
    began = time.monotonic()
    for address, port in targets:
        item: Dict = {"address": str(address), "port": int(port), "ok": False, "problem": "no answer", "ms": None}
        found.append(item)
        try:
            link = _open_connection(str(address), int(port))
        except OSError as exc:
            _set_result(item, exc.errno or errno.EINVAL, began)
            continue
        open_[link.fileno()] = (link, item)
    poller = select.poll()
    for descriptor in open_:
        poller.register(descriptor, select.POLLOUT | select.POLLERR | select.POLLHUP)
    while open_ and (left := began + seconds - time.monotonic()) > 0:
        for descriptor, _events in poller.poll(left * 1000):
            link, item = open_.pop(descriptor)
            poller.unregister(descriptor)
            _set_result(item, link.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR), began)
            link.close()
    for link, _unused in open_.values():
        link.close()
    return found


def read_tailscale_paths(addresses: t.Sequence[str]) -> dict[str, str]:
    """Return mesh address -> ``direct``, ``relayed`` or ``idle`` where tailscale knows it; empty without tailscale."""
    from . import facts_host, facts_source

    source = facts_source.FactsSource({})
    running = facts_host.list_processes(source)
    if not addresses or "tailscaled" not in running:
        return {}
    told = facts_host.read_tailscale(source, running, True, list(addresses))
    return {str(key): str(value) for key, value in told["peers"].items()}


def _open_connection(address: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    link = socket.socket(family, socket.SOCK_STREAM)
    link.setblocking(False)
    code = link.connect_ex((address, port))
    if code not in (0, errno.EINPROGRESS):
        link.close()
        raise OSError(code, "no connection")
    return link


def _set_result(item: Dict, code: int, began: float) -> None:
    item["ok"] = code in _ANSWERS
    item["problem"] = None if item["ok"] else errno.errorcode.get(code, str(code)).lower()
    item["ms"] = round(1000 * (time.monotonic() - began), 1)
