# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Running one group of nodes through a bench: a small job through the launchers and the hosts backend of all jobs.

The bench is our own under torchrun (it verifies the very image that will train), or nccl-tests under mpirun.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import pathlib
import shutil
import time
import typing as t

from ....module_utils._model.errors import InputError, MusterError
from ..._fabric.bench import nccl_tests
from ..._fabric.bench.plan import Stage
from ..._fabric.bench.result import BenchResult
from ..._hosts import log_follow
from ..._hosts.node_client import on_each_node
from ..shared.state_dir import StateHome, read_record
from ..training_job import run as training_job

Dict = dict[str, t.Any]
BENCH = pathlib.Path(__file__).parents[4] / "roles" / "fabric_verify" / "files"
_CLUSTER = "fabric-probes"
_OUT = "bench.json"
_LOG_BYTES = 8 << 20


@dataclasses.dataclass(frozen=True, slots=True)
class Bench:
    """How to measure. ``tool`` is ``torch`` (our bench) or ``nccl_tests``, whose programs lie in ``folder`` or PATH."""

    backend: str
    collective: str
    tool: str = "torch"
    folder: str | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class GroupRun:
    """What one group of nodes showed. ``result`` is None when the bench did not finish; ``problem`` says why."""

    nodes: tuple[str, ...]
    result: BenchResult | None
    ranks_seen: tuple[int, ...]
    ranks_asked: int
    problem: str
    logs: t.Mapping[str, str]
    seconds: float
    silent: t.Mapping[int, str] = dataclasses.field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def busbw_gb_s(self) -> float | None:
        """The bus bandwidth of the largest size in GB/s; None when there is no result."""
        row = self.result.judged if self.result else None
        return row.busbw_gb_s if row else None


class Quiet:
    """Benches are many and short: their own progress is not shown."""

    def say(self, line: str) -> None:
        """Drop a line."""

    def show(self, values: t.Mapping[str, t.Any]) -> None:
        """Drop the values."""


# Runs the bench on one group of nodes: (group, stage, bench, run id).
RunGroup = t.Callable[[tuple[str, ...], Stage, Bench, str], GroupRun]


def run_stage(run: RunGroup, stage: Stage, bench: Bench, token: str) -> list[GroupRun]:
    """Run all groups of a stage: those of one round at once, the rounds one after another."""
    found: list[GroupRun] = []
    for number, groups in enumerate(stage.rounds):
        with concurrent.futures.ThreadPoolExecutor(max_workers=max(1, len(groups))) as pool:
            names = [f"{token}-{stage.name}-{number}-{index}" for index in range(len(groups))]
            futures = [pool.submit(run, group, stage, bench, name) for group, name in zip(groups, names, strict=True)]
            found += [future.result() for future in futures]
    return found


def run_group(
    request: training_job.Request, group: tuple[str, ...], stage: Stage, bench: Bench, run_id: str
) -> GroupRun:
    """Run the bench on ``group`` and read back what it wrote; what it left on the nodes is removed."""
    began = time.monotonic()
    options = {
        **request.options,
        "job": job_of(request.options, group, stage, bench),
        "run_id": run_id,
        "state": "present",
        "cluster": _CLUSTER,
        "wait": True,
        "drill": None,
        "take_over": False,
    }
    inner = dataclasses.replace(request, options=options, hosts=group, progress=Quiet(), base=BENCH)
    problem = ""
    try:
        problem = str(training_job.run(inner).get("msg", ""))
    except MusterError as exc:
        problem = str(exc)
    documents, logs, events, output = _collect(inner, group, run_id, bench)
    folder = StateHome(request.options["state_home"], _CLUSTER).run_folder(run_id)
    # A failed run's result is short: what it saw stands in its record.
    attempts = (read_record(folder) or {}).get("attempts", [])
    seen = tuple(sorted(int(rank) for rank in (attempts[-1]["rank_list"] if attempts else [])))
    # A node that is gone cannot be asked any more: what it told while it lived is here.
    told = folder / "events.jsonl"
    events += log_follow.parse_json_lines(told.read_text(errors="replace")) if told.exists() else []
    shutil.rmtree(folder, ignore_errors=True)
    asked = len(group) * stage.processes_per_node
    notes: tuple[str, ...] = ()
    if bench.tool == "nccl_tests":
        nodes = _places(events)
        result, trouble, notes = nccl_tests.result(output, bench.collective, nodes, asked)
        if result is not None and problem and not result.wrong_values:
            # A table is printed before the last ranks end: one that hung then did not take part to the end.
            result, trouble = None, "the test did not end well"
        problem = f"{trouble} ({problem})" if trouble and problem else trouble
        seen = seen or tuple(sorted(nodes))
    else:
        result, trouble = parse(documents)
    spent = time.monotonic() - began
    return GroupRun(group, result, seen, asked, problem or trouble, logs, spent, silent(events), notes)


def job_of(options: t.Mapping[str, t.Any], group: tuple[str, ...], stage: Stage, bench: Bench) -> Dict:
    """Return the job that runs the bench on a group of nodes; ``options`` are the module's."""
    env = dict(stage.environment)
    if bench.backend == "nccl":
        env.update({"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET,ENV", "NCCL_DEBUG_FILE": "nccl.%h.%p.log"})
    job: Dict = {
        "name": "fabric-bench",
        "nodes": len(group),
        "gpus_per_node": stage.processes_per_node if bench.backend == "nccl" else 0,
        "processes_per_node": stage.processes_per_node,
        "code": {"from": "path", "ref": str(BENCH)},
        "env": env,
        "restart": {"max_crashes": 0, "max_lost_nodes": 0, "on_lost_node": "fail", "wait_s": int(stage.timeout_s)},
        "checkpoints": {"grace_s": 1},
        "timeout_s": int(stage.timeout_s) + 5,
        "placement": {"allow_slow_network": True},
    }
    if bench.tool == "nccl_tests":
        if stage.split_mod:
            env["NCCL_TESTS_SPLIT"] = f"MOD {stage.split_mod}"
        job.update(launcher="mpi", command=nccl_tests.command(stage, bench.collective, bench.folder))
        return job
    sizes = [str(size) for size in stage.sizes]
    args = ["--backend", bench.backend, "--collective", bench.collective, "--sizes", *sizes]
    args += ["--seconds", str(stage.seconds), "--timeout", str(max(5.0, stage.timeout_s - 10))]
    args += ["--split-mod", str(stage.split_mod)] if stage.split_mod else []
    args += ["--expected", f"{stage.expected_gb_s:g}"] if stage.expected_gb_s else []
    job.update(script="allreduce_bench.py", args=[*args, "--out", f"{{run_dir}}/{_OUT}"])
    if options.get("python"):
        job["python"] = options["python"]
    return job


def _collect(
    request: training_job.Request, group: tuple[str, ...], run_id: str, bench: Bench
) -> tuple[list[str], dict[str, str], list[Dict], str]:
    """Return result documents, NCCL's logs, events and the first node's output; the run's folders are removed."""
    documents: list[str] = []
    output = ""
    logs: dict[str, str] = {}
    events: list[Dict] = []

    # Only what this bench writes: each look takes a process on the node.
    wanted = [(_OUT, bench.tool == "torch", 64 << 20), ("code/nccl.*.log", bench.backend == "nccl", _LOG_BYTES)]
    wanted += [("events.jsonl", True, _LOG_BYTES), ("units/agent/log", bench.tool == "nccl_tests", _LOG_BYTES)]

    def work(remote: t.Any) -> list[list[Dict]]:
        found = [
            remote.call("read", run_id=run_id, pattern=pattern, limit=limit)["files"] if needed else []
            for pattern, needed, limit in wanted
        ]
        remote.ask("remove", run_id=run_id)
        return found

    answers, _unused = on_each_node(request.connect(group), work)
    for node, (out, nccl, told, said) in answers.items():
        output = "".join(item["text"] for item in said) if node == group[0] else output
        events += [line for item in told for line in log_follow.parse_json_lines(item["text"])]
        documents += [item["text"] for item in out]
        logs.update({f"{node}/{item['path']}": item["text"] for item in nccl})
    return documents, logs, events, output


def _places(events: t.Iterable[Dict]) -> dict[int, str]:
    """Return rank -> node of the ranks that recorded their start."""
    started = (line for line in events if line.get("kind") == "worker_started" and isinstance(line.get("rank"), int))
    return {line["rank"]: str(line.get("node")) for line in started}


def silent(events: t.Iterable[Dict]) -> dict[int, str]:
    """Return rank -> node of the ranks that started and whose end nobody recorded: they were killed, or they hang."""
    ended = {line["rank"] for line in events if line.get("kind") == "worker_exit"}
    return {
        int(line["rank"]): str(line.get("node"))
        for line in events
        if line.get("kind") == "worker_started" and line.get("rank") is not None and line["rank"] not in ended
    }


def parse(documents: t.Sequence[str]) -> tuple[BenchResult | None, str]:
    """Return the first result document, or None and why there is none."""
    if not documents:
        return None, "the bench wrote no result"
    try:
        return BenchResult.from_text(documents[0]), ""
    except InputError as exc:
        return None, str(exc)
