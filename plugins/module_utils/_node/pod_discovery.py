# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The discovery of a gang in pods: each pod finds the first one before a launcher starts.

A name may not resolve yet, or still resolve to the pod of the previous attempt: the first pod answers with its run and
attempt, and the others ask until these are the right ones. torch alone fails in both cases, or hangs.
"""

from __future__ import annotations

import json
import socket
import threading
import time
import typing as t

_ANSWER_S = 5.0
_AGAIN_S = 0.25
# A pod's name resolves moments after it has an address. The cluster's resolver caches an earlier negative answer: for
# 5 s with CoreDNS' defaults, for 30 s as kubeadm configures it.
SETTLE_S = 1.0
_LINE = 4096


class SharedProof(t.Protocol):
    """Answers what the other pods ask of the checkpoint folder."""

    def answer(self, rank: int, word: object) -> dict[str, t.Any]: ...


class DiscoveryServer:
    """The first pod's side: answers the others and records which ranks have connected."""

    def __init__(
        self, host: str, port: int, run: t.Mapping[str, t.Any], node: str = "", shared: SharedProof | None = None
    ) -> None:
        """Listen at ``host:port``. ``run`` is the ``run_id`` and ``attempt`` of this gang, ``node`` the first one.

        :raises OSError: when the port is taken.
        """
        self.run, self.node, self.shared = dict(run), node, shared
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
                client, _unused = self.listener.accept()
            except OSError:
                return
            with client:
                self._answer(client)

    def _answer(self, client: socket.socket) -> None:
        client.settimeout(_ANSWER_S)
        try:
            hello = json.loads(client.makefile("rb").readline(_LINE))
            matches = {key: hello.get(key) for key in self.run} == self.run
            more: dict[str, t.Any] = {}
            if matches:
                self.seen[int(hello["rank"])] = str(hello["node"])
            if matches and self.shared is not None and "shared" in hello:
                more = {"node": self.node, **self.shared.answer(int(hello["rank"]), hello["shared"])}
            client.sendall(json.dumps({"ok": matches, **self.run, **more}).encode() + b"\n")
            # The other pod closes first: the port is then free again at once.
            client.recv(1)
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return


def retry_listening(
    listen: t.Callable[[], DiscoveryServer], until: float, pause: t.Callable[[float], bool]
) -> DiscoveryServer:
    """Return the server that ``listen`` opens; a port that is taken is tried again until ``until``.

    :raises OSError: when it stays taken.
    """
    while True:
        try:
            return listen()
        except OSError:
            if time.monotonic() > until or not pause(1.0):
                raise


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
    """Return the address behind ``name`` at which the first pod of this attempt answers.

    :param since: monotonic time at which this pod started: the name is resolved a second later.
    :param until: monotonic time at which to give up.
    :param pause: waits so many seconds and returns False when the pod must stop.
    :raises TimeoutError: with the last reason, in one line.
    """
    early = since + SETTLE_S - time.monotonic()
    if early > 0 and not pause(early):
        raise TimeoutError("stopped while waiting for the first node")
    problem, report_at = "", time.monotonic() + 10
    while True:
        try:
            address = resolve_name(name)
            problem = _ask_first_pod(address, port, {**run, **me}, run)
            if not problem:
                return address
        except socket.gaierror as exc:
            problem = f"{name} does not resolve ({exc.strerror or exc})"
        except OSError as exc:
            problem = f"{name}:{port} does not answer ({exc.strerror or exc})"
        if time.monotonic() > until:
            raise TimeoutError(problem)
        if time.monotonic() > report_at:
            report_at = time.monotonic() + 60
            say(f"still waiting for the first node: {problem}")
        if not pause(_AGAIN_S):
            raise TimeoutError("stopped while waiting for the first node")


def resolve_name(name: str) -> str:
    """Return an address of ``name``, IPv4 before IPv6.

    :raises socket.gaierror: when there is none.
    """
    addresses = [entry[4][0] for entry in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)]
    return str(next((address for address in addresses if ":" not in str(address)), addresses[0]))


def exchange(address: str, port: int, hello: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Send one message to the first pod and return its answer.

    :raises OSError: when it does not answer.
    :raises ValueError: when the answer is not that of a pod.
    """
    with socket.create_connection((address, port), timeout=_ANSWER_S) as connection:
        connection.sendall(json.dumps(hello).encode() + b"\n")
        answer = json.loads(connection.makefile("rb").readline(_LINE))
    if not isinstance(answer, dict):
        raise ValueError("not an object")
    return answer


def _ask_first_pod(address: str, port: int, hello: t.Mapping[str, t.Any], run: t.Mapping[str, t.Any]) -> str:
    try:
        answer = exchange(address, port, hello)
    except ValueError:
        return f"{address}:{port} answers, but it is not a pod of this run"
    if answer.get("ok"):
        return ""
    return f"{address} belongs to {answer.get('run_id')} attempt {answer.get('attempt')}, not to {run}"
