# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How the pods of a gang find the first one before any launcher starts.

A name may not be known yet, or still lead to the pod of the attempt before: the first pod answers with the run and the
attempt that it belongs to, and the others ask until it is the right one. torch alone takes both for fatal, or hangs.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import json
import socket
import threading
import time
import typing as t

_ANSWER_S = 5.0
_AGAIN_S = 0.25
# A pod's name is known moments after it has an address. Asked for sooner, the cluster's resolver keeps the answer that
# there is none: for 5 s with CoreDNS' defaults, for 30 s as kubeadm sets it up.
SETTLE_S = 1.0
_LINE = 4096


class DiscoveryServer:
    """The first pod's side: answers the others and remembers which ranks have come."""

    def __init__(self, host: str, port: int, run: t.Mapping[str, t.Any]) -> None:
        """Listen at ``host:port``. ``run`` (``run_id`` and ``attempt``) is what a guest must belong to.

        :raises OSError: when the port is taken.
        """
        self.run = dict(run)
        self.seen: dict[int, str] = {}
        self.listener = socket.create_server(
            (host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET, backlog=1024
        )
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._serve, name="meeting", daemon=True).start()

    def close(self) -> None:
        """Stop answering."""
        self.listener.close()

    def _serve(self) -> None:
        while True:
            try:
                guest, _unused = self.listener.accept()
            except OSError:
                return
            with guest:
                self._answer(guest)

    def _answer(self, guest: socket.socket) -> None:
        guest.settimeout(_ANSWER_S)
        try:
            asked = json.loads(guest.makefile("rb").readline(_LINE))
            mine = {key: asked.get(key) for key in self.run} == self.run
            if mine:
                self.seen[int(asked["rank"])] = str(asked["node"])
            guest.sendall(json.dumps({"ok": mine, **self.run}).encode() + b"\n")
            # The guest closes first: the port is then free again at once.
            guest.recv(1)
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return


def find_first_pod(
    name: str,
    port: int,
    me: t.Mapping[str, t.Any],
    run: t.Mapping[str, t.Any],
    until: float,
    pause: t.Callable[[float], bool],
    say: t.Callable[[str], None],
    since: float = 0.0,
) -> str:
    """Return the address behind ``name`` at which the first pod of this very attempt answers.

    :param since: monotonic time at which this pod began: the name is asked for a second later.
    :param until: monotonic time at which to give up.
    :param pause: waits so many seconds and returns False when the pod must stop.
    :raises TimeoutError: with the last reason, in one line.
    """
    early = since + SETTLE_S - time.monotonic()
    if early > 0 and not pause(early):
        raise TimeoutError("stopped while waiting for the first node")
    problem, told = "", time.monotonic() + 10
    while True:
        try:
            address = resolve_name(name)
            problem = _ask_first_pod(address, port, {**run, **me}, run)
            if not problem:
                return address
        except socket.gaierror as exc:
            problem = f"the name {name} is not known ({exc.strerror or exc})"
        except OSError as exc:
            problem = f"{name}:{port} does not answer ({exc.strerror or exc})"
        if time.monotonic() > until:
            raise TimeoutError(problem)
        if time.monotonic() > told:
            told = time.monotonic() + 60
            say(f"still waiting for the first node: {problem}")
        if not pause(_AGAIN_S):
            raise TimeoutError("stopped while waiting for the first node")


def resolve_name(name: str) -> str:
    """Return an address of ``name``, IPv4 before IPv6.

    :raises socket.gaierror: when there is none.
    """
    found = [item[4][0] for item in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)]
    return str(next((item for item in found if ":" not in str(item)), found[0]))


def _ask_first_pod(address: str, port: int, hello: t.Mapping[str, t.Any], run: t.Mapping[str, t.Any]) -> str:
    with socket.create_connection((address, port), timeout=_ANSWER_S) as link:
        link.sendall(json.dumps(hello).encode() + b"\n")
        raw = link.makefile("rb").readline(_LINE)
    try:
        answer = json.loads(raw)
    except ValueError:
        return f"{address}:{port} answers, but is no pod of this run"
    if answer.get("ok"):
        return ""
    return f"{address} belongs to {answer.get('run_id')} attempt {answer.get('attempt')}, not to {run}"
