# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The client of one node's agent: requests travel over the connection that Ansible has to the node.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import typing as t

from ...module_utils._model.errors import MusterError, NodeError, UnreachableError
from . import agent_package

# A request may carry pieces of files; larger ones are split so that an interrupted transfer loses little.
PIECE_BYTES = 8 << 20


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

    def call(self, op: str, **values: t.Any) -> dict[str, t.Any]:
        """Send one request and return the answer.

        :raises NodeError: the node answered with a problem.
        :raises UnreachableError: the node did not answer.
        """
        answer = self.ask(op, **values)
        if answer.get("problem"):
            raise NodeError(self.name, str(answer["problem"]), str(answer.get("fix") or ""))
        return answer

    def ask(self, op: str, **values: t.Any) -> dict[str, t.Any]:
        """Send one request and return the answer, which may hold a ``problem``."""
        request = {"op": op, "node": self.name, "state_root": self.state_root, **values}
        if op == "stop" and self.owner:
            # A run that another controller owns is never stopped.
            request["owner"] = self.owner
        if op == "info":
            request["version"] = agent_package.agent_version()
        answer = self._from_installed(request) if self.program and op != "install" else None
        if answer is None:
            self.requests += 1
            output = self.shell(agent_package.boot_command(self.python), agent_package.boot_input(request))
            answer = agent_package.parse_answer(self.name, *output)
        if op == "info":
            self.program = answer.get("program")
        return answer

    def _from_installed(self, request: t.Mapping[str, t.Any]) -> dict[str, t.Any] | None:
        """Return the installed agent's answer; None when ``info`` finds that it was removed."""
        self.requests += 1
        command = agent_package.installed_command(self.python, str(self.program), reads=request["op"] == "info")
        output = self.shell(command, agent_package.encode_request(request))
        if request["op"] == "info" and not agent_package.has_answer(output[1]):
            return None
        return agent_package.parse_answer(self.name, *output)


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
