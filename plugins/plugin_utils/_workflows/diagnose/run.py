# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Diagnose a run while it hangs or is slow: ask its nodes what their ranks do, read their logs, name the cause.

It reads only, needs no lock and no claim, and works without the controller that started the run: the nodes know it.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import dataclasses
import pathlib
import typing as t

from ....module_utils._model.errors import InputError, MusterError, RefusedError
from ....module_utils._model.node import Node
from ....module_utils._secrets.scrubber import scrub
from ..._fabric.diagnosis.file import FileDiagnosis
from ..._fabric.diagnosis.live import Diagnosis, Live, Look
from ..._fabric.diagnosis.live_rules import diagnose_live, text_diagnosis
from ..._hosts import log_follow
from ..._hosts.node_client import NodeClient, on_each_node
from ..shared import run_record
from ..shared.progress import Reporter
from ..shared.state_dir import StateHome, read_record
from . import logs as diagnose_logs

Dict = dict[str, t.Any]
_LOG_BYTES = 4 << 20
_METRICS_BYTES = 256 << 10
# What a run leaves on a node: ranks' own output, the launcher's log, and NCCL's files in the folder they ran in.
_LOGS = ("ranks/**/std*.log", "units/*/log", "units/*/supervisor.log", "code/**/nccl*", "nccl*")


class Says(t.Protocol):
    """Takes lines for people."""

    def say(self, line: str) -> None: ...


@dataclasses.dataclass(frozen=True)
class Request:
    """What the face hands over. ``run_id`` None: the one run that lives on the hosts, else the newest record.

    ``cluster``: kubeconfig, context and namespace, for runs in pods.
    """

    home: StateHome
    run_id: str | None
    hosts: t.Sequence[str]
    hostvars: t.Mapping[str, t.Any]
    connect: t.Callable[[t.Sequence[str]], list[NodeClient]]
    progress: Says | Reporter
    window_s: float = 1.0
    ras_s: float = 5.0
    dest: str | None = None
    check: bool = False
    base: pathlib.Path = pathlib.Path()
    cluster: t.Mapping[str, t.Any] = dataclasses.field(default_factory=dict)


def run(request: Request) -> Dict:
    """Return ``{changed, run_id, diagnosis, nodes, summary, file?}``; the job and the nodes are left as they are."""
    record_ = _record(request)
    if (record_ or {}).get("backend") == "kubernetes" or (record_ is None and request.cluster.get("kubeconfig")):
        return _in_pods(request, record_)
    names = _names(request, record_)
    if not names:
        raise RefusedError("no host of the run is in the inventory", "Name its hosts: muster_train_hosts")
    remotes = request.connect(names)
    infos, errors = on_each_node(remotes, lambda remote: remote.call("info", facts=True))
    run_id = request.run_id or _living(infos) or (record_ or {}).get("run_id")
    if run_id is None:
        raise _nothing_lives(names, errors)
    answering = [remote for remote in remotes if remote.name in infos]
    looks, failed = on_each_node(answering, lambda remote: _look(remote, str(run_id), infos[remote.name], request))
    errors.update(failed)
    unseen = {name: Look(name, None, str(error)) for name, error in errors.items()}
    if not any(look.seen and (look.ranks or look.seen["units"]) for look in looks.values()) and not errors:
        raise RefusedError(f"no host of the play knows a run {run_id}", "Check muster_run_id and muster_train_hosts")
    known = record_ if record_ and record_.get("run_id") == run_id else None
    live = Live(str(run_id), tuple({**looks, **unseen}[name] for name in names), _world_size(known))
    found = diagnose_live(live)
    return _result(request, live, found)


def summary(found: Diagnosis) -> list[str]:
    """Return the lines for people: the state, then a line for each cause with its fix."""
    progress = found.progress
    told = f", step {progress.last_step} {progress.since_step_s:.0f} s ago" if progress.since_step_s is not None else ""
    ranks = f"{found.ranks_alive} of {found.ranks_expected or 'unknown'} ranks alive"
    lines = [f"run {found.run_id}: {found.outcome.upper()} · {progress.state}{told} · {ranks}"]
    for item in found.causes:
        where = f" on {item.node}" if item.node else ""
        lines.append(f"{item.code}{where}: {item.evidence}. {item.fix}")
    if not found.causes:
        lines.append("no cause found" if found.outcome != "pass" else "nothing is wrong as far as the nodes show")
    return [scrub(line) for line in lines]


def _in_pods(request: Request, record_: Dict | None) -> Dict:
    """Look at a run on a cluster. What talks to an API server is imported only then."""
    from ..shared import kube_connection
    from . import kubernetes as diagnose_kubernetes

    ref, job = (record_ or {}).get("backend_ref") or {}, (record_ or {}).get("job") or {}
    client = kube_connection.open_client(
        request.cluster, request.base, request.progress.say, context=ref.get("context")
    )
    placed = (job.get("placement") or {}).get("namespace")
    namespace = str(request.cluster.get("namespace") or ref.get("namespace") or placed or client.namespace)
    run_id = request.run_id or (record_ or {}).get("run_id") or diagnose_kubernetes.run_of(client, namespace)
    if run_id is None:
        raise RefusedError(f"not one single run lives in the namespace {namespace}", "Name it: muster_run_id")
    kept = request.home.run_folder(str(run_id)) / "logs" if record_ else None
    size, nodes = _world_size(record_), job.get("nodes")
    live, found = diagnose_kubernetes.look(client, namespace, str(run_id), world_size=size, nodes=nodes, kept=kept)
    return _result(request, live, found)


def _record(request: Request) -> Dict | None:
    """Return the record that this controller kept of the run, None when it kept none: then the nodes are asked."""
    if request.run_id:
        return read_record(request.home.run_folder(request.run_id))
    records = [found for folder in request.home.runs() if (found := read_record(folder)) is not None]
    return next((item for item in records if item["state"] != "ended"), records[0] if records else None)


def _names(request: Request, record_: Dict | None) -> list[str]:
    """Return the hosts of the record that the inventory knows, else those of the play."""
    recorded = [name for name in (record_ or {}).get("hosts", []) if name in request.hostvars]
    return recorded if recorded and request.run_id else list(dict.fromkeys([*request.hosts, *recorded]))


def _living(infos: t.Mapping[str, Dict]) -> str | None:
    found = sorted({item["run_id"] for info in infos.values() for item in info["live_runs"]})
    if len(found) > 1:
        raise InputError("run_id", f"{len(found)} runs live on these hosts: {', '.join(found[:8])}", "Name one")
    return found[0] if found else None


def _nothing_lives(names: t.Sequence[str], errors: t.Mapping[str, MusterError]) -> MusterError:
    if errors:
        name, error = next(iter(sorted(errors.items())))
        return RefusedError(f"no run was found; {len(errors)} of {len(names)} hosts did not answer: {name}: {error}")
    return RefusedError(f"no run lives on {', '.join(names[:8])}, and no run is recorded", "Name it: muster_run_id")


def _world_size(record_: Dict | None) -> int | None:
    asked = ((record_ or {}).get("world_size") or {}).get("asked")
    return int(asked) if isinstance(asked, int) else None


def _look(remote: NodeClient, run_id: str, info: Dict, request: Request) -> Look:
    seen = remote.call("examine", run_id=run_id, window_s=request.window_s, ras_s=request.ras_s)
    metrics = remote.call("read", run_id=run_id, pattern="metrics.jsonl", limit=_METRICS_BYTES)["files"]
    # What nothing has written to since the newest start tells of an attempt before it.
    began = max((rank.get("started_at") or 0.0 for rank in seen["ranks"]), default=0.0)
    logs: dict[str, str] = {}
    for pattern in _LOGS:
        for item in remote.call("read", run_id=run_id, pattern=pattern, limit=_LOG_BYTES)["files"]:
            if item["modified_at"] >= began - 1:
                logs.setdefault(str(item["path"]), str(item["text"]))
    facts = {**info["facts"], "name": remote.name}
    node = Node.from_dict(facts, f"{remote.name}.facts")
    found = _diagnoses(remote.name, logs)
    steps = tuple(_steps(item["text"] for item in metrics))
    return Look(remote.name, seen, "", node, found, steps)


def _diagnoses(node: str, logs: t.Mapping[str, str]) -> tuple[FileDiagnosis, ...]:
    return tuple(text_diagnosis(text, f"{node}/{path}") for path, text in sorted(logs.items()) if text)


def _steps(texts: t.Iterable[str]) -> t.Iterator[tuple[float, int]]:
    for text in texts:
        for line in log_follow.parse_json_lines(text):
            at, step = line.get("at"), line.get("step")
            if isinstance(at, int | float) and isinstance(step, int):
                yield float(at), step


def _result(request: Request, live: Live, found: Diagnosis) -> Dict:
    document = {
        "schema": run_record.SCHEMA,
        **_scrubbed(found.to_dict()),
        "nodes": {look.name: {"problem": look.problem or None, "seen": look.seen} for look in live.looks},
    }
    lines = summary(found)
    for line in lines:
        request.progress.say(line)
    result: Dict = {"changed": False, "run_id": found.run_id, "diagnosis": document, "summary": lines}
    if request.dest:
        target = pathlib.Path(request.dest).expanduser()
        result.update(changed=diagnose_logs.write(target, document, check=request.check), file=str(target))
    return result


def _scrubbed(value: Dict) -> Dict:
    for kind in ("causes", "also"):
        value[kind] = [{**item, "evidence": scrub(item["evidence"])} for item in value[kind]]
    return value
