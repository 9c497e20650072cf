# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Diagnose a run that hangs or is slow: read the state of its ranks and their logs from its nodes, name the cause.

It only reads and takes no leader lease. It works without the controller that started the run: the nodes hold the state.
"""

from __future__ import annotations

import dataclasses
import pathlib
import time
import typing as t

from ....module_utils._model.error_line import rank_errors, without_launcher
from ....module_utils._model.errors import InputError, MusterError, RefusedError
from ....module_utils._model.node import Node
from ....module_utils._model.node_report import NodeReport
from ....module_utils._model.run_record import SCHEMA
from ....module_utils._node import files
from ....module_utils._node.metric_lines import Forms
from ....module_utils._secrets.scrubber import scrub
from ..._fabric.diagnosis.file import FileDiagnosis, diagnose_text
from ..._fabric.diagnosis.known_run import KnownRun
from ..._fabric.diagnosis.live import NodeObservation, RunDiagnosis, RunObservation, describe_gpus
from ..._fabric.diagnosis.live_rules import diagnose_live
from ..._fabric.diagnosis.stacks import describe_rank
from ..._hosts.node_client import NodeClient, on_each_node
from ..shared.progress import Reporter
from ..shared.state_dir import StateHome, is_followed, load_record, names_cluster, read_record
from ..training_job.load import load_recorded_job
from ..training_job.movement import read_end
from . import attach
from .logs import write_if_changed

_LOG_BYTES = 4 << 20
_STREAM_BYTES = 256 << 10
_MAX_NAMES = 8
# In so many seconds a rank that works has done something.
_ATTACH_S = 6.0
# What a run leaves on a node: the ranks' output, the launcher's log, and NCCL's files in the working directory.
_LOGS = ("ranks/**/std*.log", "units/*/log", "units/*/supervisor.log", "code/**/nccl*", "nccl*")


@dataclasses.dataclass(frozen=True)
class DiagnoseRequest:
    """The options of ``diagnose_run``. ``run_id`` None: the one run on the hosts, else the newest record.

    ``cluster``: kubeconfig, context and namespace, for runs in pods. ``attach``: jobs of others on the hosts instead.
    """

    home: StateHome
    run_id: str | None
    hosts: t.Sequence[str]
    hostvars: t.Mapping[str, t.Any]
    connect: t.Callable[[t.Sequence[str]], list[NodeClient]]
    progress: Reporter
    window_s: float = 1.0
    ras_s: float = 5.0
    dest: str | None = None
    check: bool = False
    base: pathlib.Path = pathlib.Path()
    cluster: t.Mapping[str, t.Any] = dataclasses.field(default_factory=dict)
    attach: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class RecordedRun:
    """What a diagnosis needs of a run's record. ``nodes`` and ``world_size`` are what the job asks for."""

    run_id: str
    ended: bool = False
    succeeded: bool = False
    problems: tuple[str, ...] = ()
    on_kubernetes: bool = False
    hosts: tuple[str, ...] = ()
    nodes: int | None = None
    world_size: int | None = None
    namespace: str | None = None
    context: str | None = None
    folder: pathlib.Path = pathlib.Path()
    reference: t.Mapping[str, t.Any] = dataclasses.field(default_factory=dict)

    @classmethod
    def read(cls, folder: pathlib.Path) -> RecordedRun | None:
        """Return the run whose record is in a folder, None without a record."""
        record = read_record(folder)
        if record is None:
            return None
        reference, job = record.get("backend_ref") or {}, record.get("job") or {}
        world_size = (record.get("world_size") or {}).get("asked")
        return cls(
            run_id=str(record["run_id"]),
            ended=record["state"] == "ended",
            succeeded=record["state"] == "ended" and record.get("outcome") == "succeeded",
            problems=tuple(record.get("problems") or ()),
            on_kubernetes=record.get("backend") == "kubernetes",
            hosts=tuple(record.get("hosts") or ()),
            nodes=job.get("nodes"),
            world_size=int(world_size) if isinstance(world_size, int) else None,
            namespace=reference.get("namespace") or (job.get("placement") or {}).get("namespace"),
            context=reference.get("context"),
            folder=folder,
            reference=reference,
        )

    def read_known(self) -> KnownRun:
        """Return what the record and the kept events and steps of the run say."""
        events = files.parse_json_lines(files.read_text(self.folder / "events.jsonl"))
        metrics = files.parse_json_lines(read_end(self.folder / "metrics.jsonl"))
        return KnownRun.build(read_record(self.folder) or {"state": "ended"}, events, metrics, time.time())

    def read_forms(self) -> Forms | None:
        """Return how the program of the run prints its steps, None where the recorded job does not say it."""
        try:
            record = load_record(self.folder)
            return load_recorded_job(record).metrics.forms if record else None
        except MusterError:
            # The job of another version: programs are known by what they print then.
            return None


@dataclasses.dataclass(frozen=True, slots=True)
class HostInfo:
    """What a host's agent answered: the node's facts, the runs that are running on it, and what was seen of one run."""

    node: Node
    live_runs: tuple[str, ...]
    seen: NodeObservation | MusterError | None

    @classmethod
    def read(cls, remote: NodeClient, run_id: str | None, request: DiagnoseRequest) -> HostInfo:
        """Ask a host for its facts and runs: first, in seconds, whether it is there, for facts take as drivers need.

        The run that is known already is looked at then: hosts that answer need not wait for those that do not.
        """
        remote.call("info")
        report = NodeReport.from_dict(remote.call("info", facts=True))
        node = Node.from_dict({**report.facts, "name": remote.name}, f"{remote.name}.facts")
        seen: NodeObservation | MusterError | None = None
        if run_id is not None:
            try:
                seen = _observe_node(remote, run_id, node, request)
            except MusterError as error:
                seen = error
        return cls(node, tuple(run.run_id for run in report.live_runs), seen)


def run(request: DiagnoseRequest) -> dict[str, object]:
    """Return ``{changed, run_id, diagnosis, nodes, summary, file?}``; the job and the nodes are not changed."""
    if request.attach:
        found = attach.attach(request.connect(request.hosts), max(request.window_s, _ATTACH_S))
        for line in t.cast("list[str]", found["summary"]):
            request.progress.say(line)
        return {**found, **_write(request, found)}
    record = _find_record(request)
    if record.on_kubernetes if record else _is_of_cluster(request):
        return _diagnose_pods(request, record)
    names = _host_names(request, record)
    if not names:
        raise RefusedError("no host of the run is in the inventory", "Name its hosts: muster_train_hosts")
    remotes = request.connect(names)
    likely = request.run_id or (record.run_id if record and not record.ended else None)
    infos, errors = on_each_node(remotes, lambda remote: HostInfo.read(remote, likely, request))
    run_id = request.run_id or _find_live_run(infos) or (record.run_id if record else None)
    if run_id is None:
        raise _no_run_error(names, errors)

    def take_observation(remote: NodeClient) -> NodeObservation:
        info = infos[remote.name]
        if run_id != likely or info.seen is None:
            return _observe_node(remote, run_id, info.node, request)
        if isinstance(info.seen, MusterError):
            raise info.seen
        return info.seen

    nodes, failed = on_each_node([remote for remote in remotes if remote.name in infos], take_observation)
    errors.update(failed)
    known = record if record and record.run_id == run_id else None
    succeeded = known is not None and known.succeeded
    kept = known.read_known() if known else None
    if not errors and not (kept and kept.over) and not any(_has_run(node) for node in nodes.values()):
        raise RefusedError(
            f"run {run_id} does not exist on any host of the play", "Check muster_run_id and muster_train_hosts"
        )
    absent = {name: NodeObservation(name, None, str(error)) for name, error in errors.items()}
    observed = tuple({**nodes, **absent}[name] for name in names)
    kept = _note_going(request, run_id, known, kept, observed)
    observation = RunObservation(run_id, observed, known.world_size if known else None, "hosts", succeeded, kept)
    diagnosis = diagnose_live(observation)
    stood = _read_stacks(remotes, run_id) if diagnosis.progress.state in ("late", "hanging") else []
    return _build_result(request, observation, diagnosis, known, stood)


def _read_stacks(remotes: t.Sequence[NodeClient], run_id: str) -> list[str]:
    """Return where each rank of a run stands, as far as it can be seen without disturbing it."""
    answers, _errors = on_each_node(remotes, lambda remote: remote.call("stacks", run_id=run_id))
    return [describe_rank(name, rank) for name, answer in sorted(answers.items()) for rank in answer["ranks"]]


def _note_going(
    request: DiagnoseRequest,
    run_id: str,
    record: RecordedRun | None,
    kept: KnownRun | None,
    nodes: t.Sequence[NodeObservation],
) -> KnownRun | None:
    """Return what is known of a run on hosts with whether it has not ended: between two attempts no rank of it runs."""
    is_going = any(map(_has_launcher, nodes)) or (record is not None and is_followed(request.home, run_id))
    if not is_going or (kept is not None and kept.over is not None):
        return kept
    return dataclasses.replace(kept or KnownRun(None, time.time()), over=False)


def _has_launcher(node: NodeObservation) -> bool:
    """Return whether the launcher of the run is running on a node."""
    return bool((((node.answer or {}).get("units") or {}).get("agent") or {}).get("alive"))


def _has_run(node: NodeObservation) -> bool:
    """Return whether a node has ranks of the run, or its folder."""
    return bool(node.answer and (node.ranks or node.answer["units"]))


def summarise(diagnosis: RunDiagnosis, gpus: str = "", problems: t.Sequence[str] = (), ended: str = "") -> list[str]:
    """Return lines for people: the state, the GPUs, then a line for each cause with its fix.

    :param problems: what the record of a run that has succeeded says against its result.
    :param ended: how it ended otherwise, as its record says.
    """
    progress = diagnosis.progress
    since = progress.since_step_s
    step = f", step {progress.last_step} {since:.0f} s ago" if since is not None else ""
    ranks = f"{diagnosis.ranks_alive} of {diagnosis.ranks_expected or 'unknown'} ranks alive"
    if diagnosis.unseen:
        ranks = f"{ranks}, those of {', '.join(diagnosis.unseen[:_MAX_NAMES])} not known"
    if diagnosis.has_succeeded:
        last = f" · last step {progress.last_step}" if progress.last_step is not None else ""
        found = scrub(f"not clean: {'; '.join(problems)}") if problems else "nothing is left to find"
        return [f"run {diagnosis.run_id}: PASS · succeeded{last} · {found}"]
    lines = [f"run {diagnosis.run_id}: {diagnosis.outcome.upper()} · {progress.state}{step} · {ranks}"]
    lines += [f"GPUs: {gpus}"] if gpus else []
    for cause in diagnosis.causes:
        where = f" on {cause.node}" if cause.node else ""
        lines.append(f"{cause.code}{where}: {cause.evidence.removesuffix('.')}. {cause.fix}")
    if progress.state == "late" and since is not None:
        usual = f", a step usually takes {progress.step_s:.3g} s" if progress.step_s else ""
        lines.append(f"no step for {since:.0f} s{usual}; run diagnose again in half a minute")
    if not diagnosis.causes and ended:
        lines.append(f"as recorded: {ended}")
    elif not diagnosis.causes:
        lines.append("no cause found" if diagnosis.outcome != "pass" else "no problem found")
    return [scrub(line) for line in lines]


def _diagnose_pods(request: DiagnoseRequest, record: RecordedRun | None) -> dict[str, object]:
    """Diagnose a run on a cluster. The Kubernetes client is imported only then."""
    from ..shared import kube_connection
    from . import kubernetes

    client = kube_connection.open_client(
        request.cluster, request.base, request.progress.say, context=record.context if record else None
    )
    namespace = str(request.cluster.get("namespace") or (record and record.namespace) or client.namespace)
    run_id = request.run_id or (record.run_id if record else kubernetes.find_run(client, namespace))
    if run_id is None:
        raise RefusedError(f"namespace {namespace} does not hold exactly one active run", "Name it: muster_run_id")
    known = record.read_known() if record else None
    if record and known and known.over is None:
        # Who follows it keeps its record up to date; else its cluster says whether it has ended.
        over = False if is_followed(request.home, run_id) else kubernetes.is_over(client, run_id, record.reference)
        known = dataclasses.replace(known, over=over)
    observation, diagnosis = kubernetes.diagnose_pods(
        client,
        namespace,
        run_id,
        world_size=record.world_size if record else None,
        nodes=record.nodes if record else None,
        saved_logs=request.home.run_folder(run_id) / "logs" if record else None,
        succeeded=record is not None and record.succeeded,
        known=known,
        forms=record.read_forms() if record else None,
    )
    return _build_result(request, observation, diagnosis, record)


def _find_record(request: DiagnoseRequest) -> RecordedRun | None:
    """Return the record that this controller holds of the run: the named one, else one not ended, else the newest."""
    if request.run_id:
        return RecordedRun.read(request.home.run_folder(request.run_id))
    records = [record for folder in request.home.runs() if (record := RecordedRun.read(folder)) is not None]
    return next((record for record in records if not record.ended), records[0] if records else None)


def _is_of_cluster(request: DiagnoseRequest) -> bool:
    """Return whether a run without a record is looked for in pods; machines of the play go before our own cluster."""
    if names_cluster(request.cluster) or not request.cluster.get("kubeconfig"):
        return names_cluster(request.cluster)
    known = [name for name in request.hosts if name in request.hostvars]
    return not any(name != "localhost" or request.hostvars[name].get("muster_node") for name in known)


def _host_names(request: DiagnoseRequest, record: RecordedRun | None) -> list[str]:
    """Return the recorded hosts that are in the inventory when the run was named, else those of the play too."""
    recorded = [name for name in (record.hosts if record else ()) if name in request.hostvars]
    return recorded if recorded and request.run_id else list(dict.fromkeys([*request.hosts, *recorded]))


def _find_live_run(infos: t.Mapping[str, HostInfo]) -> str | None:
    runs = sorted({run_id for info in infos.values() for run_id in info.live_runs})
    if len(runs) > 1:
        names = ", ".join(runs[:_MAX_NAMES])
        raise InputError("run_id", f"{len(runs)} runs are running on these hosts: {names}", "Name one")
    return runs[0] if runs else None


def _no_run_error(names: t.Sequence[str], errors: t.Mapping[str, MusterError]) -> MusterError:
    if errors:
        name, error = min(errors.items())
        return RefusedError(f"no run was found; {len(errors)} of {len(names)} hosts did not answer: {name}: {error}")
    hosts = ", ".join(names[:_MAX_NAMES])
    return RefusedError(f"no run is running on {hosts}, and no run is recorded", "Name it: muster_run_id")


def _observe_node(remote: NodeClient, run_id: str, node: Node, request: DiagnoseRequest) -> NodeObservation:
    answer = remote.call("examine", run_id=run_id, window_s=request.window_s, ras_s=request.ras_s)
    events, metrics = (
        [
            line
            for file in remote.call("read", run_id=run_id, pattern=f"{stream}.jsonl", limit=_STREAM_BYTES)["files"]
            for line in files.parse_json_lines(str(file["text"]))
        ]
        for stream in ("events", "metrics")
    )
    # A log that was not written since the newest start belongs to an earlier attempt.
    began = max((rank.get("started_at") or 0.0 for rank in answer["ranks"]), default=0.0)
    logs: dict[str, str] = {}
    for pattern in _LOGS:
        for file in remote.call("read", run_id=run_id, pattern=pattern, limit=_LOG_BYTES)["files"]:
            if file["modified_at"] >= began - 1:
                logs.setdefault(str(file["path"]), str(file["text"]))
    steps, told = tuple(_read_steps(metrics)), (tuple(events), tuple(metrics))
    errors = {rank: error for text in logs.values() for rank, error in rank_errors(text).items()}
    return NodeObservation(remote.name, answer, "", node, _diagnose_texts(remote.name, logs), steps, errors, *told)


def _diagnose_texts(node: str, logs: t.Mapping[str, str]) -> tuple[FileDiagnosis, ...]:
    return tuple(diagnose_text(without_launcher(text), f"{node}/{path}") for path, text in sorted(logs.items()) if text)


def _read_steps(metrics: t.Iterable[t.Mapping[str, t.Any]]) -> t.Iterator[tuple[float, int]]:
    for line in metrics:
        at, step = line.get("at"), line.get("step")
        if isinstance(at, int | float) and isinstance(step, int):
            yield float(at), step


def _build_result(
    request: DiagnoseRequest,
    observation: RunObservation,
    diagnosis: RunDiagnosis,
    record: RecordedRun | None,
    stood: t.Sequence[str] = (),
) -> dict[str, object]:
    document = {
        "schema": SCHEMA,
        **_scrub_evidence(diagnosis).to_dict(),
        "nodes": {node.name: {"problem": node.problem or None, "seen": node.answer} for node in observation.nodes},
    }
    problems = record.problems if record else ()
    ended = observation.known.describe_end() if observation.known else ""
    lines = [*summarise(diagnosis, describe_gpus(observation), problems, ended), *map(scrub, stood)]
    for line in lines:
        request.progress.say(line)
    result: dict[str, object] = {
        "changed": False,
        "run_id": diagnosis.run_id,
        "diagnosis": document,
        "summary": lines,
    }
    return {**result, **_write(request, document)}


def _write(request: DiagnoseRequest, document: t.Mapping[str, object]) -> dict[str, object]:
    """Write a diagnosis where it is to be written; return ``{changed, file}``, nothing where that is nowhere."""
    if not request.dest:
        return {}
    target = pathlib.Path(request.dest).expanduser()
    return {"changed": write_if_changed(target, document, check=request.check), "file": str(target)}


def _scrub_evidence(diagnosis: RunDiagnosis) -> RunDiagnosis:
    """Return the diagnosis with secrets removed from all evidence."""
    causes, also = (
        tuple(dataclasses.replace(cause, evidence=scrub(cause.evidence)) for cause in group)
        for group in (diagnosis.causes, diagnosis.also)
    )
    return dataclasses.replace(diagnosis, causes=causes, also=also)
