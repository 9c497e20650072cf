# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How often an agent asks for the others, and that a torch that we do not know is left as it is."""

from __future__ import annotations

import io
import types
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._node import elastic, torch_forkserver


@pytest.mark.parametrize(
    ("argv", "env", "pause"),
    [
        (["--nnodes=2"], {}, 0.05),
        (["--nnodes=2:40"], {}, 0.2),
        (["--rdzv-id=x", "--nnodes=64", "--nnodes-like=9"], {}, 0.32),
        (["--nnodes=5000"], {}, 1.0),
        ([], {}, 0.05),
        (["--nnodes=many"], {}, 0.05),
        ([], {"PET_NNODES": "2:40"}, 0.2),
        (["--nnodes=2"], {"PET_NNODES": "64"}, 0.05),
    ],
)
def test_all_agents_together_ask_as_often_whatever_their_number(
    argv: list[str], env: dict[str, str], pause: float
) -> None:
    assert elastic.pause_s(argv, env) == pytest.approx(pause)


class StateHolder:
    """What torch's holder of the rendezvous' state has of interest: when it read last."""

    def __init__(self, backend: str) -> None:
        self.backend, self._last_sync_time = backend, 17.0


def test_only_the_fixed_wait_is_shortened_and_what_was_read_before_it_is_read_again() -> None:
    waited: list[object] = []
    module = types.SimpleNamespace(_delay=waited.append, _BackendRendezvousStateHolder=StateHolder)
    assert elastic.ask_sooner(module, 0.1) is True  # type: ignore[arg-type]
    holder = module._BackendRendezvousStateHolder("store")
    assert isinstance(holder, StateHolder) and (holder.backend, holder._last_sync_time) == ("store", 17.0)
    for seconds in (1, 0.01, (0, 0.3)):
        module._delay(seconds)
    assert waited == [0.1, 0.01, (0, 0.3)] and holder._last_sync_time == -1


@pytest.mark.parametrize(
    "values", [{}, {"_delay": None, "_BackendRendezvousStateHolder": StateHolder}, {"_delay": print}]
)
def test_a_torch_without_that_wait_is_left_alone(values: dict[str, object]) -> None:
    module = types.SimpleNamespace(**values)
    assert elastic.ask_sooner(module, 0.1) is False and vars(module) == values  # type: ignore[arg-type]


class Handler:
    """What torch's starter of ranks has of interest."""

    def __init__(self, out: t.IO[bytes] | None) -> None:
        self._stdout, self._stderr = out, None

    def _popen(self, args: tuple[str, ...], env: dict[str, str]) -> str:
        return f"ordinary {args[0]} {env['RANK']}"


class Template:
    """A template that starts what is warm."""

    def start(self, args: tuple[str, ...], env: dict[str, str], *places: int | None) -> object:
        return ("warm", args, env, places) if args[0] == "warm" else None


class Out(io.BytesIO):
    """A file with a number."""

    def fileno(self) -> int:
        return 17


def test_the_agent_asks_the_template_and_starts_the_ordinary_way_what_it_refuses() -> None:
    module = types.SimpleNamespace(SubprocessHandler=type("Starter", (Handler,), {"_popen": Handler._popen}))
    template = t.cast("torch_forkserver.Template", Template())
    assert elastic.start_warm(t.cast("types.ModuleType", module), template) is True
    starter = module.SubprocessHandler(Out())
    assert starter._popen(("warm",), {"RANK": "3"}) == ("warm", ("warm",), {"RANK": "3"}, (17, None))
    assert starter._popen(("cold",), {"RANK": "3"}) == "ordinary cold 3"


@pytest.mark.parametrize("module", [types.SimpleNamespace(), types.SimpleNamespace(SubprocessHandler=object)])
def test_a_torch_that_starts_ranks_elsewhere_is_left_alone(module: t.Any) -> None:
    assert elastic.start_warm(module, t.cast("torch_forkserver.Template", Template())) is False


@pytest.mark.parametrize(
    ("argv", "env", "set_"),
    [
        (["--nproc-per-node=1"], {}, {}),
        (["--nproc-per-node=8"], {}, {"OMP_NUM_THREADS": "1"}),
        (["--nproc-per-node=8"], {"OMP_NUM_THREADS": "4"}, {}),
        ([], {}, {}),
        ([], {"PET_NPROC_PER_NODE": "1"}, {}),
        ([], {"PET_NPROC_PER_NODE": "8"}, {"OMP_NUM_THREADS": "1"}),
        (["--nproc-per-node=1"], {"PET_NPROC_PER_NODE": "8"}, {}),
    ],
)
def test_copies_get_the_threads_that_torchrun_gives_its_ranks(
    argv: list[str], env: dict[str, str], set_: dict[str, str]
) -> None:
    assert elastic.threads(argv, env) == set_
