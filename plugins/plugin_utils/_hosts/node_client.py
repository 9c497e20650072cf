# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The client of one node's agent: requests travel over the connection that Ansible has to the node."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import io
import queue
import threading
import time
import typing as t

from ...module_utils._model.errors import MusterError, NodeError, UnreachableError
from . import agent_package

# A request may carry pieces of files; larger ones are split so that an interrupted transfer loses little.
PIECE_BYTES = 8 << 20
# Seconds in which a request must be answered that looks at nothing but the node's own files.
ANSWER_S = 7.0
# And for a watch, which may find the node busy, beyond the time that it waits by itself.
_WATCH_S = 10.0
# Steps of installing programs that take long: a download has 900 s on the node, a removal of K3s ends all pods, an
# image is unpacked.
_STEPS_S: t.Final = {"bring": 600.0, "remove": 600.0, "apply": 300.0, "load_image": 2000.0}
_FETCH_S = 960.0
# The slowest line that files of the controller are sent over.
_BYTES_A_SECOND = 50_000
_DEADLINES_S = {
    "put": 300.0,
    "install": 120.0,
    "prepare": 900.0,
    "start": 60.0,
    "read": 120.0,
    "examine": 300.0,
    "environment": 3600.0,
    "results": 600.0,
    "firewall": 300.0,
}
# Steps with an object store: a node gives up by itself when a store is silent, so these only end what hangs.
_S3_S: t.Final = {"restore": 6 * 3600.0, "plan": 6 * 3600.0, "stage": 300.0}
_LONGEST_S = 300.0
# What info looks into outside its own files: an interpreter on a slow network disk, drivers.
_SLOW_FACTS = ("facts", "python", "tools", "mounts", "paths", "files", "blobs")


# And for the command true, where the first request of a node takes longer.
_LOGIN_S = 13.0
Ended = queue.SimpleQueue["tuple[int, str, str] | Exception"]


class Shell(t.Protocol):
    """Runs a shell command on a node with ``data`` on its standard input; raises UnreachableError."""

    def __call__(self, command: str, data: bytes) -> tuple[int, str, str]: ...


@dataclasses.dataclass
class NodeClient:
    """One node: its inventory name, shell, interpreter and folders, and the owner that sends the requests."""

    name: str
    shell: Shell
    python: str | None = None
    state_root: str | None = None
    program: str | None = None
    owner: str | None = None
    requests: int = 0
    renew: t.Callable[[], None] = lambda: None
    has_answered: bool = False

    def call(self, op: str, **values: t.Any) -> dict[str, t.Any]:
        """Send one request and return the answer.

        :raises NodeError: the node answered with a problem.
        :raises UnreachableError: the node did not answer.
        """
        answer = self.ask(op, **values)
        if answer.get("problem"):
            raise NodeError(self.name, str(answer["problem"]), str(answer.get("fix") or ""))
        return answer

    def ask(
        self, op: str, *, deadline_s: float | None = None, body: t.Iterable[bytes] = (), **values: t.Any
    ) -> dict[str, t.Any]:
        """Send one request and return the answer, which may hold a ``problem``.

        :param deadline_s: seconds to wait for the answer, where the request's own is too long.
        :param body: pieces of what the operation reads after the request, such as files; taken once.
        """
        within_s = answer_deadline_s(op, values) if deadline_s is None else deadline_s
        request = {"op": op, "node": self.name, "state_root": self.state_root, **values}
        if body != ():
            request["body"] = True
        if op == "stop" and self.owner:
            # A run that another controller owns is never stopped.
            request["owner"] = self.owner
        if op == "info":
            request["version"] = agent_package.agent_version()
        answer = self._from_installed(request, within_s, body) if self.program and op != "install" else None
        if answer is None:
            self.requests += 1
            command = agent_package.boot_command(self.python)
            output = self.run(command, _join(agent_package.boot_input(request), body), within_s)
            answer = agent_package.parse_answer(self.name, *output)
        if op == "info":
            self.program = answer.get("program")
        return answer

    def run(self, command: str, data: bytes, within_s: float = _LONGEST_S) -> tuple[int, str, str]:
        """Run a shell command on the node with ``data`` on its standard input.

        :raises UnreachableError: also when it has not ended within ``within_s`` seconds. A connection to a host that
            lost its power or its network can stay open for hours; the command is left to itself then.
        """
        began = time.monotonic()
        ended = self._begin(command, data)
        result = _take(ended, min(within_s, ANSWER_S))
        is_first = within_s > ANSWER_S and not self.has_answered
        # Before a long wait: a login whose shell or files stand never comes to the command.
        if result is None and is_first and _take(self._begin("true", b""), _LOGIN_S) is None:
            raise self._silent(ANSWER_S + _LOGIN_S)
        if result is None:
            result = _take(ended, within_s - (time.monotonic() - began))
        if result is None:
            raise self._silent(within_s)
        if isinstance(result, Exception):
            raise result
        self.has_answered = True
        return result

    def _begin(self, command: str, data: bytes) -> Ended:
        """Run a command in a thread of its own, which is left to itself once its time is over."""
        ended: Ended = queue.SimpleQueue()

        def work() -> None:
            try:
                ended.put(self.shell(command, data))
            except Exception as exc:
                ended.put(exc)

        threading.Thread(target=work, name=f"request-{self.name}", daemon=True).start()
        return ended

    def _silent(self, seconds: float) -> UnreachableError:
        self.renew()
        fix = "Check that it is running and reachable, and that its user's login ends: ssh it with the command true"
        return UnreachableError(self.name, f"no answer within {seconds:.0f} s", fix)

    def _from_installed(
        self, request: t.Mapping[str, t.Any], within_s: float, body: t.Iterable[bytes]
    ) -> dict[str, t.Any] | None:
        """Return the installed agent's answer; None when it was removed, as with the disk that it was on."""
        self.requests += 1
        command = agent_package.installed_command(self.python, str(self.program), reads=request["op"] == "info")
        output = self.run(command, _join(agent_package.encode_request(request), body), within_s)
        if request["op"] == "info" and not agent_package.has_answer(output[1]):
            return None
        if body == () and agent_package.is_removed(output):
            return None
        return agent_package.parse_answer(self.name, *output)


def _join(head: bytes, body: t.Iterable[bytes]) -> bytes:
    """Return a request with what follows it, in one buffer: a connection takes it whole, and it is held once."""
    if body == ():
        return head
    buffer = io.BytesIO()
    buffer.write(head)
    for piece in body:
        buffer.write(piece)
    return buffer.getvalue()


def answer_deadline_s(op: str, values: t.Mapping[str, t.Any]) -> float:
    """Return the seconds after which a request without an answer has failed."""
    if op == "watch":
        return float(values.get("wait_s", 0)) + _WATCH_S
    if op == "stop":
        # The agent's processes and the store's, one after the other.
        return 2 * float(values.get("within_s", 60)) + ANSWER_S
    if op == "reach":
        return float(values.get("seconds", 0)) + 60.0
    if op == "vxlan":
        return float(values.get("wait_s", 0)) + 60.0
    if op in ("k3s", "mesh", "service"):
        sent_s = float(values.get("size", 0)) / _BYTES_A_SECOND
        more_s = _FETCH_S * len(values.get("fetches", ())) + sent_s + float(values.get("wait_s", 0))
        return _STEPS_S.get(str(values.get("step")), 120.0) + more_s
    if op == "s3":
        return _S3_S.get(str(values.get("step")), 180.0)
    if op == "info" and not any(values.get(name) for name in _SLOW_FACTS):
        return ANSWER_S
    return _DEADLINES_S.get(op, _LONGEST_S if op == "info" else 60.0)


def _take(ended: Ended, within_s: float) -> tuple[int, str, str] | Exception | None:
    try:
        return ended.get(timeout=max(0.0, within_s))
    except queue.Empty:
        return None


def find_answering(remotes: t.Sequence[NodeClient]) -> tuple[list[NodeClient], dict[str, MusterError]]:
    """Return the nodes that answer within seven seconds, and the errors of the others by name."""
    _unused, errors = on_each_node(remotes, lambda remote: remote.call("info"))
    return [remote for remote in remotes if remote.name not in errors], errors


def on_each_node[T](
    remotes: t.Sequence[NodeClient], work: t.Callable[[NodeClient], T]
) -> tuple[dict[str, T], dict[str, MusterError]]:
    """Do ``work`` on all nodes at once; return results and errors by node name."""
    results: dict[str, T] = {}
    errors: dict[str, MusterError] = {}
    with concurrent.futures.ThreadPoolExecutor(max_workers=max(1, len(remotes)), thread_name_prefix="muster") as pool:
        futures = {pool.submit(work, remote): remote.name for remote in remotes}
        for future in concurrent.futures.as_completed(futures):
            name = futures[future]
            try:
                results[name] = future.result()
            except MusterError as exc:
                errors[name] = exc
    return results, errors


def most_telling_error(errors: t.Mapping[str, MusterError]) -> MusterError:
    """Return the error to show: the error of a node tells more than that another could not be reached."""
    ordered = sorted(errors.items(), key=lambda item: (isinstance(item[1], UnreachableError), item[0]))
    shown = ordered[0][1]
    rest = len(ordered) - 1
    if rest:
        names = ", ".join(name for name, _unused in ordered[1:6]) + ("…" if rest > 5 else "")
        return MusterError(f"{shown.message} (also failed: {names})", shown.fix)
    return shown
