# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""torchrun's agent: what ``python -m torch.distributed.run`` starts, twice as quick to meet.

Run by the job's interpreter with torchrun's own arguments. Three things that torchrun has no option for:

- Nothing that importing torch makes is ever garbage; without looking for it the import takes an eighth less.
- An agent that waits for the others asks again after a second, and takes what it read less than a second ago for an
  answer (torch 2.15, dynamic_rendezvous.py): a second or two of every start and restart of a gang. Here all agents of
  a gang that waits ask the store 200 times a second together; an agent whose ranks run asks as seldom as ever.
- Ranks are copies of a process that has imported torch (``warm.py``), unless MUSTER_PRELOAD=0 in the job's ``env``.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import sys
import types
import typing as t

if t.TYPE_CHECKING or __name__ != "__main__":
    from . import rank, torch_forkserver
else:
    # Started as a file. As members of their package the neighbours keep out of the way of the user's modules.
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    rank = importlib.import_module("muster_node.rank")
    torch_forkserver = importlib.import_module("muster_node.torch_forkserver")
    del sys.path[0]

_LEAST_S, _MOST_S, _ASKS_PER_S = 0.05, 1.0, 200


def told(name: str, argv: t.Sequence[str], env: t.Mapping[str, str]) -> str:
    """Return what torchrun is told of ``name``, as ``--name=VALUE`` or in ``PET_NAME``; empty for nothing."""
    given = [item.partition("=")[2] for item in argv if item.startswith(f"--{name}=")]
    return given[0] if given else env.get(f"PET_{name.replace('-', '_').upper()}", "")


def pause_s(argv: t.Sequence[str], env: t.Mapping[str, str]) -> float:
    """Return how long an agent waits before it asks again: the more nodes, the longer."""
    most = told("nnodes", argv, env).rpartition(":")[2]
    nodes = int(most) if most.isdecimal() else 1
    return min(_MOST_S, max(_LEAST_S, nodes / _ASKS_PER_S))


def ask_sooner(rendezvous: types.ModuleType, pause: float) -> bool:
    """Shorten the waits between two looks at the rendezvous; return whether this torch has them where we know."""
    wait, holder = getattr(rendezvous, "_delay", None), getattr(rendezvous, "_BackendRendezvousStateHolder", None)
    if not callable(wait) or not isinstance(holder, type):
        return False
    read: list[t.Any] = []

    class Holder(holder):  # type: ignore[misc, valid-type]
        """What the agent last read of the rendezvous."""

        def __init__(self, *args: t.Any, **kwargs: t.Any) -> None:
            super().__init__(*args, **kwargs)
            read.append(self)

    def shorter(seconds: float | tuple[float, float]) -> None:
        # A pair is a random delay that keeps agents apart: that one stays.
        wait(seconds if isinstance(seconds, tuple) else min(seconds, pause))
        for state in read:
            state._last_sync_time = -1

    rendezvous._delay, rendezvous._BackendRendezvousStateHolder = shorter, Holder  # type: ignore[attr-defined]
    return True


def start_warm(handlers: types.ModuleType, template: torch_forkserver.Template) -> bool:
    """Let the agent ask ``template`` for its ranks; return whether this torch starts them where we know."""
    handler = getattr(handlers, "SubprocessHandler", None)
    ordinary = getattr(handler, "_popen", None)
    if not callable(ordinary):
        return False

    def popen(self: t.Any, args: tuple[str, ...], env: dict[str, str]) -> t.Any:
        streams = [getattr(self, name, None) for name in ("_stdout", "_stderr")]
        places = [stream.fileno() if stream else None for stream in streams]
        return template.start(args, env, *places) or ordinary(self, args, env)

    handler._popen = popen  # type: ignore[union-attr]
    return True


def threads(argv: t.Sequence[str], env: t.Mapping[str, str]) -> dict[str, str]:
    """Return what torchrun sets for its ranks when it has several: a copy of this process has its threads already."""
    several = told("nproc-per-node", argv, env) not in ("", "1")
    return {"OMP_NUM_THREADS": "1"} if several and "OMP_NUM_THREADS" not in env else {}


def _module(name: str) -> types.ModuleType | None:
    try:
        return importlib.import_module(f"torch.distributed.elastic.{name}")
    except ImportError:
        # Another torch keeps it elsewhere: its own way does as well.
        return None


def main(argv: list[str]) -> None:
    """Run the agent with torchrun's arguments ``argv[1:]``."""
    # This file's neighbours must not stand in for packages of the same name.
    sys.path[:] = [place for place in sys.path if place != os.path.dirname(os.path.abspath(__file__))]
    gc.disable()
    os.environ.update(threads(argv, os.environ))
    torchrun = importlib.import_module("torch.distributed.run")
    rendezvous = _module("rendezvous.dynamic_rendezvous")
    handlers = _module("multiprocessing.subprocess_handler.subprocess_handler")
    gc.freeze()
    gc.enable()
    if rendezvous:
        ask_sooner(rendezvous, pause_s(argv, os.environ))
    if handlers and os.environ.get("MUSTER_PRELOAD") != "0":
        # A node that does not promise memory for a copy (vm.overcommit_memory=2) starts its ranks the ordinary way.
        with contextlib.suppress(OSError):
            start_warm(handlers, torch_forkserver.open_template(sys.orig_argv[0], rank.main))
    torchrun.main(argv[1:])


if __name__ == "__main__":
    main(sys.argv)
