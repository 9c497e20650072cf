# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The input and the result of a launcher: job and nodes -> per node a command, its environment and files to place.

Adding a launcher is one file with a function ``launch(job, nodes, run) -> Launch`` for hosts, a function
``pods(job, run) -> {role: PodSpec}`` for Kubernetes, and its name in ``_model/launchers.py``.
"""

from __future__ import annotations

import dataclasses
import typing as t

# How the node's supervisor treats the end of the process; the words are those of ``_node/host_restart_policy.py``.
Policy = t.Literal["torchrun", "whole", "never"]
STORE_PROGRAM = "{program}/muster_node/torch_store.py"


@dataclasses.dataclass(frozen=True, slots=True)
class NodeSlot:
    """One node of the gang as a launcher sees it. ``run_dir`` is the run's folder on that node, ``home`` the user's.

    ``network``: the variables of NCCL and gloo that the verdict on the node's network asks for.
    """

    name: str
    rank: int
    address: str
    interface: str | None
    python: str
    run_dir: str
    agent_python: str = "python3"
    tools: t.Mapping[str, str | None] = dataclasses.field(default_factory=dict)
    user: str = ""
    network: t.Mapping[str, str] = dataclasses.field(default_factory=dict)
    home: str | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class RunContext:
    """The constants of a run: ``port`` is the rendezvous port, ``attempt`` the first attempt's number.

    ``checkpoint_dir`` is the run's folder on the nodes; without one it is in the folder of the run. ``checkpoint_part``
    is what a start has below it for itself. ``clock_spread_s``: how far the clocks of its hosts are apart.
    """

    run_id: str
    port: int
    attempt: int
    checkpoint_dir: str | None
    checkpoint_part: str = ""
    clock_spread_s: float = 0.0

    def checkpoints_in(self, run_dir: str) -> str:
        """Return where this start's checkpoints are on a node with this folder of the run."""
        folder = self.checkpoint_dir or f"{run_dir}/checkpoints"
        return f"{folder}/{self.checkpoint_part}" if self.checkpoint_part else folder


@dataclasses.dataclass(frozen=True, slots=True)
class NodeLaunch:
    """The command of one node. ``{program}`` in ``argv`` stands for the installed agent's folder on the node."""

    argv: tuple[str, ...]
    env: t.Mapping[str, str]
    files: t.Mapping[str, str] = dataclasses.field(default_factory=dict)
    wait_for_peer: bool = True


@dataclasses.dataclass(frozen=True, slots=True)
class Launch:
    """The whole gang. ``store`` is the argument list of the first node's rendezvous store, if there is one."""

    nodes: tuple[NodeLaunch, ...]
    policy: Policy
    store: tuple[str, ...] | None = None
    restarts: str = ""
    keypair: bool = False
