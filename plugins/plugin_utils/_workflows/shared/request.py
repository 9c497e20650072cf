# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The request of a run: what an action hands to the workflow behind it."""

from __future__ import annotations

import dataclasses
import pathlib
import typing as t

from ....module_utils._model.job_backends import Surroundings
from ....module_utils._model.node import Node
from ....module_utils._model.node_environment import Environment
from ....module_utils._model.node_facts import merge_facts, read_record
from ..._hosts.node_client import NodeClient
from .progress import Progress

Dict = dict[str, t.Any]
# What a workflow hands back to its action.
Result = dict[str, object]


@dataclasses.dataclass(frozen=True)
class RunRequest:
    """What the face hands over: options, the play's hosts with their variables, and how to reach them.

    ``command_line``: the options of ansible-playbook by which a later command finds the same machines and variables.
    ``unrepeated``: the names of variables that were given by value, which may be secret.
    ``environment``: the variables of NCCL and gloo of each node, None for those of the cluster's fabric verdict.
    """

    options: Dict
    hosts: t.Sequence[str]
    hostvars: t.Mapping[str, t.Any]
    base: pathlib.Path
    check: bool
    connect: t.Callable[[t.Sequence[str]], list[NodeClient]]
    progress: Progress
    environment: t.Mapping[str, Environment] | None = None
    command_line: tuple[str, ...] = ()
    unrepeated: tuple[str, ...] = ()

    @property
    def surroundings(self) -> Surroundings:
        """Return what there is to run a job on. ``localhost`` counts only where the inventory describes it."""
        named = any(self.options.get(key) for key in ("kubeconfig", "context"))
        return Surroundings(any(self._is_machine(name) for name in self.hosts), named)

    def _is_machine(self, name: str) -> bool:
        variables = self.hostvars[name] if name in self.hostvars else {}  # noqa: SIM401
        record = variables.get("muster_node")
        return (record or {}).get("kind") != "cluster" if record or name != "localhost" else False

    def node(self, name: str, facts: t.Mapping[str, t.Any] | None = None) -> Node:
        """Return the node ``name``: the inventory's record, merged with what was measured on it.

        :raises InputError: naming the field of the record that cannot be read.
        """
        # A name that is not a host has no variables: hostvars would raise only when they are used.
        variables = self.hostvars[name] if name in self.hostvars else {}  # noqa: SIM401
        record = read_record(name, variables)
        return merge_facts(record, Node.from_dict({**facts, "name": name}, f"{name}.facts")) if facts else record
