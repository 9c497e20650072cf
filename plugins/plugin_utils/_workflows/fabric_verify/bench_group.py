# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run the bench on one group of nodes as a small training job, and read its result back from the nodes.

The bench is the collection's own under torchrun (it tests the image and interpreter that will train), or nccl-tests
under mpirun.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import io
import pathlib
import shutil
import time
import typing as t

from ....module_utils._model.errors import InputError, MusterError
from ....module_utils._model.node_environment import Environment
from ....module_utils._node import files
from ..._fabric.bench import nccl_tests
from ..._fabric.bench.plan import BenchStage
from ..._fabric.bench.result import BenchResult
from ..._fabric.diagnosis.scan import scan_log
from ..._hosts.node_client import NodeClient, on_each_node
from ..shared.state_dir import StateHome, read_record
from ..training_job import run as training_job

BENCH = pathlib.Path(__file__).parents[4] / "roles" / "fabric_verify" / "files"
_CLUSTER = "fabric-probes"
_OUT = "bench.json"
_LOG_BYTES = 8 << 20
_RESULT_BYTES = 64 << 20


@dataclasses.dataclass(frozen=True, slots=True)
class Bench:
    """How to measure. ``tool`` is ``torch`` (our bench) or ``nccl_tests``, whose programs are in ``folder`` or PATH.

    ``environment``: the variables of NCCL and gloo of each node, as its jobs will get them.
    """

    backend: str
    collective: str
    tool: str = "torch"
    folder: str | None = None
    environment: t.Mapping[str, Environment] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True)
class GroupRun:
    """The result of the bench on one group of nodes.

    ``result`` is None when the bench did not finish; ``problem`` says why. ``silent`` are the ranks (with their nodes)
    that started and whose end was not recorded.
    """

    nodes: tuple[str, ...]
    result: BenchResult | None
    ranks_seen: tuple[int, ...]
    rank_count: int
    problem: str
    logs: t.Mapping[str, str]
    seconds: float
    silent: t.Mapping[int, str] = dataclasses.field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def busbw_gb_s(self) -> float | None:
        """The bus bandwidth of the largest size in GB/s; None without a result."""
        row = self.result.largest_row if self.result else None
        return row.busbw_gb_s if row else None


@dataclasses.dataclass(slots=True)
class BenchOutput:
    """What the bench left on its nodes: result documents, NCCL's logs, events, and the first node's printed output."""

    documents: list[str] = dataclasses.field(default_factory=list)
    logs: dict[str, str] = dataclasses.field(default_factory=dict)
    events: list[t.Mapping[str, object]] = dataclasses.field(default_factory=list)
    text: str = ""


class SilentProgress:
    """Drops all progress: benches are many and short, and only their results are shown."""

    def say(self, line: str) -> None:
        """Drop a line."""

    def show(self, values: t.Mapping[str, object]) -> None:
        """Drop the values."""


# Runs the bench on one group of nodes: (group, stage, bench, run id).
RunGroup = t.Callable[[tuple[str, ...], BenchStage, Bench, str], GroupRun]


def run_stage(run: RunGroup, stage: BenchStage, bench: Bench, token: str) -> list[GroupRun]:
    """Run all groups of a stage: the groups of one round at once, the rounds one after another."""
    results: list[GroupRun] = []
    for number, groups in enumerate(stage.rounds):
        with concurrent.futures.ThreadPoolExecutor(max_workers=max(1, len(groups))) as pool:
            names = [f"{token}-{stage.name}-{number}-{index}" for index in range(len(groups))]
            futures = [pool.submit(run, group, stage, bench, name) for group, name in zip(groups, names, strict=True)]
            results += [future.result() for future in futures]
    return results


def run_group(
    request: training_job.RunRequest, group: tuple[str, ...], stage: BenchStage, bench: Bench, run_id: str
) -> GroupRun:
    """Run the bench on ``group`` and read its result back; its files are removed from the nodes."""
    began = time.monotonic()
    options = {
        **request.options,
        "job": build_job(request.options, group, stage, bench, out=f"{{run_dir}}/{_OUT}"),
        "run_id": run_id,
        "state": "present",
        "cluster": _CLUSTER,
        "wait": True,
        "drill": None,
        "take_over": False,
    }
    inner = dataclasses.replace(request, options=options, hosts=group, progress=SilentProgress(), base=BENCH)
    inner = dataclasses.replace(inner, environment=bench.environment)
    try:
        failure = str(training_job.run(inner).get("msg", ""))
    except MusterError as exc:
        failure = str(exc)
    output = _collect_output(inner, group, run_id, bench)
    folder = StateHome(request.options["state_home"], _CLUSTER).run_folder(run_id)
    ranks = _recorded_ranks(folder)
    # A node that no longer answers cannot be read; the controller holds the events it reported until then.
    output.events += read_events(folder)
    shutil.rmtree(folder, ignore_errors=True)
    rank_count = len(group) * stage.processes_per_node
    notes: tuple[str, ...] = ()
    if bench.tool == "nccl_tests":
        result, problem, notes = read_nccl_tests(output.text, output.events, bench, rank_count, failure)
        ranks = ranks or tuple(sorted(_rank_nodes(output.events)))
    else:
        result, problem = parse_result(output.documents)
        problem = failure or problem
    seconds = time.monotonic() - began
    silent = find_silent_ranks(output.events)
    return GroupRun(group, result, ranks, rank_count, problem, output.logs, seconds, silent, notes)


def read_nccl_tests(
    text: str, events: t.Iterable[t.Mapping[str, object]], bench: Bench, rank_count: int, failure: str
) -> tuple[BenchResult | None, str, tuple[str, ...]]:
    """Return what nccl-tests measured, why there is no result (else empty), and notes.

    :param text: what mpirun printed.
    :param events: what the ranks recorded of their start and end.
    :param failure: how the gang failed, empty when it succeeded.
    """
    tests = scan_log(io.BytesIO(text.encode("utf-8", "replace"))).tests
    result, problem, notes = nccl_tests.read_result(tests, text, bench.collective, _rank_nodes(events), rank_count)
    if result is not None and failure and not result.wrong_values:
        # The table is printed before the last ranks end: a rank that hung after it did not finish the test.
        result, problem = None, "not all ranks finished the test"
    return result, f"{problem} ({failure})" if problem and failure else problem, notes


def build_job(
    options: t.Mapping[str, object],
    group: tuple[str, ...],
    stage: BenchStage,
    bench: Bench,
    *,
    out: str,
    env: t.Mapping[str, object] | None = None,
    nccl_logs: bool = True,
) -> dict[str, object]:
    """Return the job that runs the bench on a group of nodes.

    :param options: the module's options.
    :param out: file to which the bench writes its result, ``-`` for its log.
    :param env: the user's environment; the variables of the test override it.
    :param nccl_logs: NCCL writes its log to files, else to the rank's own output.
    """
    variables: dict[str, object] = {**(env or {}), **stage.environment}
    if bench.backend == "nccl":
        variables.update({"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET,ENV"})
        if nccl_logs:
            variables["NCCL_DEBUG_FILE"] = "nccl.%h.%p.log"
    job: dict[str, object] = {
        "name": "fabric-bench",
        "nodes": len(group),
        "gpus_per_node": stage.processes_per_node if bench.backend == "nccl" else 0,
        "processes_per_node": stage.processes_per_node,
        "code": {"from": "path", "ref": str(BENCH)},
        "env": variables,
        "restart": {"max_crashes": 0, "max_lost_nodes": 0, "on_lost_node": "fail", "wait_s": int(stage.timeout_s)},
        "checkpoints": {"grace_s": 1},
        "timeout_s": int(stage.timeout_s) + 5,
        "placement": {"allow_slow_network": True},
    }
    if bench.tool == "nccl_tests":
        if stage.split_mod:
            variables["NCCL_TESTS_SPLIT"] = f"MOD {stage.split_mod}"
        return {**job, "launcher": "mpi", "command": nccl_tests.build_command(stage, bench.collective, bench.folder)}
    job.update(script="allreduce_bench.py", args=[*_bench_arguments(stage, bench), "--out", out])
    return {**job, "python": options["python"]} if options.get("python") else job


def _bench_arguments(stage: BenchStage, bench: Bench) -> list[str]:
    """Return the arguments of ``allreduce_bench.py`` but for ``--out``."""
    sizes = [str(size) for size in stage.sizes]
    arguments = ["--backend", bench.backend, "--collective", bench.collective, "--sizes", *sizes]
    arguments += ["--seconds", str(stage.seconds), "--timeout", str(max(5.0, stage.timeout_s - 10))]
    arguments += ["--split-mod", str(stage.split_mod)] if stage.split_mod else []
    return arguments + (["--expected", f"{stage.expected_gb_s:g}"] if stage.expected_gb_s else [])


def _recorded_ranks(folder: pathlib.Path) -> tuple[int, ...]:
    """Return the ranks of the newest attempt in a run's record; a failed run's result does not hold them."""
    attempts = (read_record(folder) or {}).get("attempts", [])
    return tuple(sorted(int(rank) for rank in (attempts[-1]["rank_list"] if attempts else [])))


def read_events(folder: pathlib.Path) -> list[t.Mapping[str, object]]:
    """Return the events that the controller holds of a run; none when the file does not exist."""
    path = folder / "events.jsonl"
    return list(files.parse_json_lines(path.read_text(errors="replace"))) if path.exists() else []


def _collect_output(request: training_job.RunRequest, group: tuple[str, ...], run_id: str, bench: Bench) -> BenchOutput:
    """Read what the bench left on its nodes and remove it there."""
    # Each pattern costs a process on the node, so that only those that this bench writes are read.
    patterns = (
        (_OUT, bench.tool == "torch", _RESULT_BYTES),
        ("code/nccl.*.log", bench.backend == "nccl", _LOG_BYTES),
        ("events.jsonl", True, _LOG_BYTES),
        ("units/agent/log", bench.tool == "nccl_tests", _LOG_BYTES),
    )

    def read_files(remote: NodeClient) -> list[list[tuple[str, str]]]:
        """Return (path, text) of the files of each pattern."""
        files = []
        for pattern, needed, limit in patterns:
            entries = remote.call("read", run_id=run_id, pattern=pattern, limit=limit)["files"] if needed else []
            files.append([(str(entry["path"]), str(entry["text"])) for entry in entries])
        remote.ask("remove", run_id=run_id)
        return files

    output = BenchOutput()
    answers, _unused = on_each_node(request.connect(group), read_files)
    for node, (results, nccl_logs, event_files, launcher_logs) in answers.items():
        if node == group[0]:
            output.text = "".join(text for _path, text in launcher_logs)
        output.events += [line for _path, text in event_files for line in files.parse_json_lines(text)]
        output.documents += [text for _path, text in results]
        output.logs.update({f"{node}/{path}": text for path, text in nccl_logs})
    return output


def _rank_nodes(events: t.Iterable[t.Mapping[str, object]]) -> dict[int, str]:
    """Return rank -> node of the ranks that recorded their start."""
    return {
        rank: str(event.get("node"))
        for event in events
        if event.get("kind") == "worker_started" and isinstance(rank := event.get("rank"), int)
    }


def find_silent_ranks(events: t.Sequence[t.Mapping[str, object]]) -> dict[int, str]:
    """Return rank -> node of the ranks that recorded a start and no end: they were killed, or they hang."""
    ended = {event.get("rank") for event in events if event.get("kind") == "worker_exit"}
    return {rank: node for rank, node in _rank_nodes(events).items() if rank not in ended}


def parse_result(documents: t.Sequence[str]) -> tuple[BenchResult | None, str]:
    """Return the first result document, or None and why it is missing."""
    if not documents:
        return None, "the bench did not write a result"
    try:
        return BenchResult.from_text(documents[0]), ""
    except InputError as exc:
        return None, str(exc)
