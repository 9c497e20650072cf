# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""torchrun: its command for every node, and that a program sees what it sees under torchrun typed by hand."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import re
import signal
import string
import subprocess
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model import error_line
from ansible_collections.muster.training.plugins.module_utils._node import (
    pod_environment,
    pod_preflight,
)
from ansible_collections.muster.training.plugins.module_utils._node import rank as rank_module
from ansible_collections.muster.training.plugins.plugin_utils._launch import registry, torchrun
from ansible_collections.muster.training.plugins.plugin_utils._launch.base import STORE_PROGRAM
from ansible_collections.muster.training.tests.support.kube_api import free_port
from ansible_collections.muster.training.tests.unit.plugins.plugin_utils._launch.gangs import RUN, job, slots


def options(argv: tuple[str, ...]) -> dict[str, str]:
    return dict(item[2:].split("=", 1) for item in argv if item.startswith("--") and "=" in item)


def test_the_agents_agree_on_everything_but_their_own_address() -> None:
    plan = registry.launch(job(processes_per_node=2, restart={"max_crashes": 2, "max_lost_nodes": 5}), slots(), RUN)
    first, second = (options(node.argv) for node in plan.nodes)
    assert {key: first[key] for key in first if first[key] != second[key]} == {
        "local-addr": "10.0.0.1",
        "log-dir": "/state/a/runs/x-1/ranks",
    }
    assert (first["nnodes"], first["nproc-per-node"], first["rdzv-endpoint"]) == ("2", "2", "10.0.0.1:20000")
    # Both budgets, because a surviving agent pays for the losses of the others too.
    assert (first["max-restarts"], first["rdzv-id"]) == ("7", "x-1-3")
    # Each rank prints into files of its own (rank.py): torchrun deletes its files when a node elsewhere fails.
    assert [node.env["MUSTER_OUTPUT"] for node in plan.nodes] == [first["log-dir"], second["log-dir"]]
    assert not {"tee", "redirects"} & {*first}
    assert plan.policy == "torchrun" and plan.keypair is False and all(node.wait_for_peer for node in plan.nodes)


def test_no_agent_is_the_rendezvous_itself() -> None:
    plan = registry.launch(job(restart={"wait_s": 77}), slots(), RUN)
    assert plan.store == ("/py0", STORE_PROGRAM, "{listen_fd}", "10.0.0.1", "20000")
    settings = dict(item.split("=") for item in options(plan.nodes[0].argv)["rdzv-conf"].split(","))
    assert settings["is_host"] == "0" and settings["join_timeout"] == "77"
    assert all(node.env["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] == "1" for node in plan.nodes)


def test_clocks_that_are_apart_take_no_node_for_lost() -> None:
    """An agent compares the heartbeats of others with its own clock."""
    for spread, attempts in ((0.0, "3"), (0.4, "3"), (1.4, "5"), (20.0, "23")):
        run = dataclasses.replace(RUN, clock_spread_s=spread)
        settings = dict(
            item.split("=")
            for item in options(registry.launch(job(), slots(), run).nodes[1].argv)["rdzv-conf"].split(",")
        )
        assert (settings["keep_alive_interval"], settings["keep_alive_max_attempt"]) == ("1", attempts)
    assert registry.launch(job(processes_per_node=3), slots(), RUN).nodes[0].env["MUSTER_WORLD_SIZE"] == "6"


def test_ranks_have_the_grace_to_save() -> None:
    plan = registry.launch(job(checkpoints={"grace_s": 120}), slots(), RUN)
    assert plan.nodes[0].env["PET_SHUTDOWN_TIMEOUT"] == "120"


@pytest.mark.parametrize(("codes", "expected"), [([3, 65], "3,65"), ([], None)])
def test_ranks_know_which_exit_codes_must_not_be_repeated(codes: list[int], expected: str | None) -> None:
    plan = registry.launch(job(restart={"fatal_exit_codes": codes}), slots(), RUN)
    assert {node.env.get("MUSTER_FATAL_EXIT_CODES") for node in plan.nodes} == {expected}


@pytest.mark.parametrize("where", ["hosts", "pods"])
def test_arguments_arrive_as_they_were_given(where: str) -> None:
    """torchrun substitutes its macros in each of them by safe_substitute (torch.distributed.elastic.utils.macros)."""
    given = ["$$(HOME)", "$HOME", "$local_rank", "cost$", "$$", "--out=rank${local_rank}", "${other}", "plain"]
    if where == "hosts":
        argv = registry.launch(job(args=given), slots(), RUN).nodes[0].argv
    else:
        placed: t.Any = {"image": "i", "placement": {"backend": "kubernetes"}}
        argv = tuple(registry.pods(job(args=given, **placed), RUN)["node"].argv)
    arrived = [string.Template(word).safe_substitute(local_rank="3") for word in argv[-len(given) :]]
    assert arrived == [word.replace("${local_rank}", "3") for word in given]


def test_the_rank_command_ends_the_argument_list() -> None:
    argv = registry.launch(job(args=["--nnodes=9"]), slots(), RUN).nodes[1].argv
    at = argv.index("--no-python") + 1
    assert argv[:3] == ("/py1", "-m", "torch.distributed.run")
    # Without it torchrun ends: "ambiguous option: --logs could match --logs-specs, --logs_specs".
    assert argv[at] == "--"
    assert argv[at + 4] == "{program}/muster_node/rank.py" and argv[-1] == "--nnodes=9"


def test_a_single_node_needs_no_store_of_its_own() -> None:
    plan = registry.launch(job(nodes=1), slots(1), RUN)
    assert plan.store is None and "--standalone" in plan.nodes[0].argv
    assert not any(item.startswith("--rdzv") for item in plan.nodes[0].argv)


DUMP = """
import sys
modules = list(sys.modules)
import json, os
status = dict(line.split(":\\t") for line in open("/proc/self/status").read().splitlines() if ":\\t" in line)
seen = {
    "modules": modules, "path": sys.path, "flags": list(sys.flags), "argv": sys.argv, "orig_argv": sys.orig_argv,
    "executable": sys.executable, "prefix": sys.prefix, "env": dict(os.environ), "cwd": os.getcwd(),
    "umask": os.umask(0o22), "command": open("/proc/self/cmdline").read().rstrip("\\0").split("\\0"),
    "threads": len(os.listdir("/proc/self/task")), "nice": os.nice(0), "cpus": sorted(os.sched_getaffinity(0)),
    # Two signals are the C library's own, for its threads.
    "signals": [int(status[name], 16) & ~(3 << 31) for name in ("SigBlk", "SigIgn", "SigCgt")], "limits": open("/proc/self/limits").read(),
    "descriptors": sorted(os.listdir("/proc/self/fd"), key=int), "stdin": os.readlink("/proc/self/fd/0"),
    "name": open("/proc/self/comm").read(), "output": [sys.stdout.encoding, sys.stdout.write_through],
}
import torch
seen["torch"] = {"threads": torch.get_num_threads(), "interop": torch.get_num_interop_threads(),
    "sum": torch.ones(2000, 2000).matmul(torch.ones(2000, 2)).sum().item(), "bad_fork": torch.cuda._is_in_bad_fork(),
    "loaded": [batch.tolist() for batch in torch.utils.data.DataLoader([1, 2, 3], num_workers=2)]}
with open(os.path.join(sys.argv[1], os.environ["LOCAL_RANK"]), "w") as file:
    json.dump(seen, file)
"""
# New in every start, by nature.
_NEW_EACH_TIME = ("MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_ERROR_FILE")


class Starts:
    """Starts a program on one node in several ways, all with the same environment."""

    def __init__(self, folder: pathlib.Path, nproc: int) -> None:
        self.folder, self.nproc = folder, nproc
        (folder / "agent").mkdir()
        (folder / "agent" / "muster_node").symlink_to(pathlib.Path(rank_module.__file__).parent)
        (folder / "code").mkdir()
        (folder / "code" / "dump.py").write_text(DUMP)
        self.python = os.environ.get("MUSTER_TORCH_PYTHON", "") or pytest.skip(
            "MUSTER_TORCH_PYTHON names no interpreter"
        )
        place = {"python": self.python, "run_dir": str(folder), "address": "127.0.0.1", "interface": None}
        values = {"nodes": 1, "processes_per_node": nproc, "args": [str(folder / "out")]}
        self.node = registry.launch(job(script="dump.py", **values), slots(1, **place), RUN).nodes[0]
        own = ("PYTHON", "OMP_", "MUSTER_", "TORCH", "PET_")
        self.env = {key: value for key, value in os.environ.items() if not key.startswith(own)} | dict(self.node.env)

    def by_hand(self) -> list[dict[str, t.Any]]:
        options = ("--standalone", f"--nproc-per-node={self.nproc}", "--local-addr=127.0.0.1", "--max-restarts=6")
        torchrun = str(pathlib.Path(self.python).parent / "torchrun")
        return self._dumps([torchrun, *options, str(self.folder / "code" / "dump.py"), str(self.folder / "out")])

    def by_us(self, **env: str) -> list[dict[str, t.Any]]:
        return self._dumps(self._fill(self.node.argv), **env)

    def _fill(self, argv: t.Iterable[str]) -> list[str]:
        return [item.replace("{program}", str(self.folder / "agent")) for item in argv]

    def _dumps(self, argv: list[str], **env: str) -> list[dict[str, t.Any]]:
        out = self.folder / "out"
        out.mkdir(exist_ok=True)
        done = subprocess.run(
            argv,
            env={**self.env, **env},
            cwd=self.folder / "code",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stdout
        return [self._read(out / str(local)) for local in range(self.nproc)]

    def _read(self, file: pathlib.Path) -> dict[str, t.Any]:
        dump = json.loads(file.read_text())
        file.unlink()
        kept = {k: v for k, v in dump["env"].items() if not k.startswith("MUSTER_") and k not in _NEW_EACH_TIME}
        return {
            **dump,
            "env": kept,
            "env_names": sorted(name for name in dump["env"] if not name.startswith("MUSTER_")),
        }


@pytest.fixture(autouse=True)
def _default_signals() -> t.Iterator[None]:
    """What a shell in the background or nohup lets this process ignore, its children would ignore from the start."""
    ignored = [
        number
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT)
        if signal.getsignal(number) == signal.SIG_IGN
    ]
    for number in ignored:
        signal.signal(number, signal.SIG_DFL)
    yield
    for number in ignored:
        signal.signal(number, signal.SIG_IGN)


def _differences(hand: t.Mapping[str, t.Any], ours: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    return {key: (hand[key], ours[key]) for key in hand if hand[key] != ours[key]}


@pytest.mark.torch
@pytest.mark.parametrize("nproc", [1, 3])
def test_a_program_sees_what_it_sees_under_torchrun_typed_by_hand(tmp_path: pathlib.Path, nproc: int) -> None:
    starts = Starts(tmp_path, nproc)
    for hand, ours in zip(starts.by_hand(), starts.by_us(), strict=True):
        assert _differences(hand, ours) == {}
        assert hand["threads"] == 1 and "torch" not in hand["modules"]


@pytest.mark.parametrize(
    ("changes", "packages"),
    [
        ({}, ("torch",)),
        ({"launcher": "deepspeed", "requires": {"torch": ">=2", "numpy": ""}}, ("torch", "deepspeed", "numpy")),
        ({"launcher": "accelerate"}, ("torch", "accelerate")),
        ({"launcher": "mpi"}, ()),
    ],
)
def test_the_packages_that_an_interpreter_must_have(changes: dict[str, object], packages: tuple[str, ...]) -> None:
    assert registry.required_packages(job(**changes)) == packages


def test_each_rank_of_a_pod_marks_its_own_lines() -> None:
    """torchrun fills in the rank of each process: its macro is not the placeholder of the pod's own rank."""
    told = torchrun.pods(job(processes_per_node=2), RUN)["node"].env
    identity = pod_preflight.PodIdentity(1, "n2", "p", 1, "127.0.0.1")
    spec = {"env": told, "port": 29500}
    found = pod_environment.build_environment(spec, identity, {}, {}, "127.0.0.1")
    template = string.Template(found["TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE"])
    lines = [f"{template.safe_substitute(rank=rank)}ValueError: of {rank}\n" for rank in (2, 3)]
    log = "".join([*lines, "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n"])
    assert error_line.rank_lines(log).splitlines() == ["[default2]:ValueError: of 2", "[default3]:ValueError: of 3"]
    assert error_line.last_error(log) == "ValueError: of 3"
    assert found["PET_NODE_RANK"] == "1"


# An agent whose clock, where it notes and compares heartbeats, is 20 seconds behind.
LATE = """
import datetime, runpy, sys
import torch.distributed.elastic.rendezvous.dynamic_rendezvous as rendezvous
real = rendezvous.datetime
class Late(real):
    @classmethod
    def now(cls, zone=None):
        return real.now(zone) - datetime.timedelta(seconds=20)
rendezvous.datetime = Late
sys.argv = ["torchrun", *sys.argv[1:]]
runpy.run_module("torch.distributed.run", run_name="__main__")
"""


@pytest.mark.torch
@pytest.mark.parametrize(("spread", "sizes"), [(20.0, ["2", "2"]), (0.0, [])])
def test_a_gang_of_fewer_ranks_than_the_job_has_never_trains(
    tmp_path: pathlib.Path, spread: float, sizes: list[str]
) -> None:
    """With the clocks of the nodes known, real agents form the whole gang; a rank of any other refuses to begin."""
    python = os.environ.get("MUSTER_TORCH_PYTHON", "") or pytest.skip("MUSTER_TORCH_PYTHON names no interpreter")
    (tmp_path / "agent").mkdir()
    (tmp_path / "agent" / "muster_node").symlink_to(pathlib.Path(rank_module.__file__).parent)
    (tmp_path / "late.py").write_text(LATE)
    (tmp_path / "train.py").write_text("import os\nprint('trains in a gang of', os.environ['WORLD_SIZE'], flush=True)")
    run = dataclasses.replace(RUN, port=free_port(), clock_spread_s=spread)
    place = {"python": python, "run_dir": str(tmp_path), "address": "127.0.0.1", "interface": None}
    whole = job(script=str(tmp_path / "train.py"), restart={"max_crashes": 0, "max_lost_nodes": 0, "wait_s": 120})
    agents, logs = [], [tmp_path / "0.log", tmp_path / "1.log"]
    for index, node in enumerate(registry.launch(whole, slots(2, **place), run).nodes):
        # Here the first agent is the store.
        words = [item.replace("{program}", str(tmp_path / "agent")) for item in node.argv]
        words = [item.replace("is_host=0", "is_host=1") if index == 0 else item for item in words]
        if index == 1:
            words[1:3] = [str(tmp_path / "late.py")]
        env = {**os.environ, **node.env, "MUSTER_OUTPUT": ""}
        with logs[index].open("wb") as log:
            agents.append(subprocess.Popen(words, env=env, stdout=log, stderr=log, cwd=tmp_path))
    try:
        codes = [agent.wait(180) for agent in agents[:1]]
        said = "".join(log.read_text() for log in logs)
    finally:
        for agent in agents:
            agent.kill()
            agent.wait()
    assert sorted(re.findall(r"trains in a gang of (\d)", "".join(log.read_text() for log in logs))) == sizes, said
    if sizes:
        assert codes == [0], said
    else:
        assert codes != [0] and "has 1 of 2 ranks. It leaves out a node" in said
        assert "GangError" in str(error_line.last_error(logs[0].read_text()))
