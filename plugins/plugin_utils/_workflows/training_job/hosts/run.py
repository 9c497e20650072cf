# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A run on plain hosts: read -> plan -> start -> follow -> record, and its cancellation."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import pathlib
import time
import typing as t

from .....module_utils._model import advice, checks, commands, job_checkpoints
from .....module_utils._model.errors import InputError, MusterError, RefusedError, UnreachableError
from .....module_utils._model.job import Job
from .....module_utils._model.network_plan import plan_hosts_network
from .....module_utils._model.node_report import NodeReport, SeenCheckpoint
from .....module_utils._model.run_record import RunRecord
from .....module_utils._node import files
from ...._hosts import agent_package, gang
from ...._hosts.node_client import NodeClient, find_answering, most_telling_error, on_each_node
from ...shared.request import Result, RunRequest
from ...shared.run_record import read_grace_s
from ...shared.state_dir import StateHome
from .. import fabric_file
from ..changes import describe_changes, refuse_other_job
from ..filesystems import bound_mounts
from ..job_secrets import leases as secret_leases
from ..job_secrets import values as secrets
from ..load import load_recorded_job
from ..monitoring import push
from ..object_stores import checkpoint_binding, dataset_binding
from ..object_stores.job_nodes import JobNodes
from ..object_stores.store_stream import stream_variables
from ..outcome import build_cancel_result, build_result, record_cancelled
from ..requested import RequestedRun, open_run
from ..source import CodeSource, read_code_texts
from ..trackers import step_log, tracking
from . import addresses, lease_guard
from . import plan as hosts_plan
from .environments import ensure_environments
from .left_checkpoints import agree
from .start import describe_start, require_same_job, start_or_join
from .state import AGENTS_FILE, HostsPlan, build_owner_mark, has_unrecorded_end, is_running

if t.TYPE_CHECKING:
    from .....module_utils._model import drill
    from ...._kube.api.client import Client


_EXTEND = "Set extend: true (muster_extend) to continue it from its checkpoints, or name another run_id (muster_run_id)"
# How long a follower may take to record the end of a run that was stopped.
_FOLLOWER_S = 10.0
# How often a cancel looks at most whether what it stopped is still stopped.
_LOOKS = 4


def run(request: RunRequest, home: StateHome, job: Job) -> Result:
    """Bring the run to the asked state and return the module's result."""
    found = hosts_plan.select_hosts(request.hosts, request.hostvars, job)
    with open_run(request, home, job) as asked:
        before = asked.before
        differs = describe_changes(before, job, asked.source.code_sha256) if before else []
        if before and before.outcome == "succeeded" and not (differs and request.options.get("extend")):
            return _leave_succeeded(asked, before, differs)
        open_cluster = functools.partial(_open_cluster, request)
        resolved = secrets.resolve_secrets(job, home, open_cluster)
        drilling = _parse_drill(request, job, found, asked.source)
        found = ensure_environments(request, job, found, asked.source)
        nodes = JobNodes([host.name for host in found], open_cluster=open_cluster)
        bound_mounts.require_reachable(home, job, nodes)
        bound = checkpoint_binding.open_bound(home, job, nodes, asked.run_id)
        datasets = dataset_binding.open_bound(home, job, nodes)
        tracked = tracking.open_bound(home, job, nodes, asked.run_id)
        watched = push.open_bound(home, job, open_cluster, request.options.get("reports_url") or "")
        if request.check:
            plan = dataclasses.replace(_build_plan(asked, found), datasets=datasets)
            return _check(asked, plan, drilling)
        with asked.lock():
            plan = dataclasses.replace(_build_plan(asked, found), bound=bound, datasets=datasets, tracked=tracked)
            _check_cut(plan, drilling)
            if is_running(plan, before):
                asked.require_one_follower()
            if ended := _read_good_end(asked, plan):
                return _leave_succeeded(asked, ended, differs)
            with (
                secret_leases.hold(request, home, asked.run_id, resolved) as full,
                step_log.log_steps(tracked, asked.folder, request.progress),
                push.send_metrics(watched, asked.folder, request.progress),
            ):
                streamed = stream_variables(dataset_binding.streams(datasets))
                told = {**tracked.plain, **tracked.hidden} if tracked else {}
                values = {**told, **streamed, **full.env}, full.files
                return start_or_join(request, home, plan, before, values, drilling)


def _leave_succeeded(asked: RequestedRun, record: RunRecord, differs: t.Sequence[str]) -> Result:
    """Say that a run has ended well, and start nothing; return the module's result.

    :raises RefusedError: when it had another job than the one that is asked for by its id.
    """
    if differs and asked.request.options.get("run_id"):
        raise refuse_other_job(asked.run_id, differs, _EXTEND)
    asked.say_succeeded()
    done = build_result(record, asked.folder, changed=False)
    return lease_guard.delete_after_end(asked.request, asked.home, asked.run_id, done, record.release_outcome)


def _find_lost(asked: RequestedRun, plan: HostsPlan) -> RunRecord | None:
    """Return the record of a run that was lost while it was not followed, on the same hosts; None for any other.

    A launcher that was killed, or whose node lost power, has recorded no end of its own: its ranks may have ended well
    before.
    """
    before, names = asked.before, {host.name for host in plan.hosts}
    if before is None or before.is_ended or names != set(before.hosts):
        return None
    return None if is_running(plan, before) or has_unrecorded_end(plan, before) else before


def _read_good_end(asked: RequestedRun, plan: HostsPlan) -> RunRecord | None:
    """Return the record of a lost run with its end where all of its ranks had ended well, None for any other."""
    lost = _find_lost(asked, plan)
    if lost is None:
        return None
    # Late: few runs are lost while they are not followed.
    from .refresh import refresh_held

    prices = {host.name: host.price_usd_per_hour for host in plan.hosts}
    record = refresh_held(asked.home, lost, plan.remotes, prices, asked.request.progress)
    return record if record.outcome == "succeeded" else None


def _would_succeed(asked: RequestedRun, plan: HostsPlan) -> bool:
    """Return whether a start would find that all ranks of the run had ended well."""
    lost = _find_lost(asked, plan)
    if lost is None:
        return False
    # Late: few runs are lost while they are not followed.
    from .refresh import had_ended_well

    return had_ended_well(asked.home, lost, plan.remotes, asked.request.progress)


def _open_cluster(request: RunRequest) -> Client:
    """Return a client for the cluster that holds the job's secrets."""
    # Late: few jobs on hosts name one.
    from ...shared import kube_connection

    return kube_connection.open_client(request.options, request.base, request.progress.say)


def _check(asked: RequestedRun, plan: HostsPlan, drilling: drill.Drill | None) -> Result:
    """Say what would be done."""
    _check_cut(plan, drilling)
    require_same_job(plan, asked.before)
    progress, unseen = asked.request.progress, has_unrecorded_end(plan, asked.before) or _would_succeed(asked, plan)
    changed = not (unseen or is_running(plan, asked.before))
    dataset_binding.announce_stage(plan.datasets, plan.remotes[0], progress)
    origin = describe_start(plan, asked.before) if changed and asked.before else ""
    names = ", ".join(host.name for host in plan.hosts)
    if unseen:
        progress.say(f"run {plan.run_id} has ended on {names} while it was not followed; nothing was changed")
    else:
        asked.say_plan(changed, f"on {names}", origin)
    return {
        "changed": changed,
        "run_id": plan.run_id,
        "derived": plan.derived,
        "checks": checks.build_result(plan.checks),
    }


def cancel(request: RunRequest, home: StateHome, record: RunRecord) -> Result:
    """Stop a run on all its nodes; a run that has ended keeps its outcome, and only what is left of it is stopped."""
    # Late: a start need not wait for what explains an end.
    from .refresh import refresh_record

    run_id = record.run_id
    folder = home.run_folder(run_id)
    names = [name for name in record.node_names if name in request.hostvars]
    remotes = request.connect(names)
    present, errors = find_answering(remotes)
    if request.check:
        return _check_cancel(request, record, present, errors)
    current = [remote for remote in present if remote.name in record.hosts]
    refresh = functools.partial(refresh_record, home, remotes=current, hostvars=request.hostvars)
    record = refresh(record, progress=request.progress)
    was_ended = record.is_ended
    for remote in present:
        remote.owner = None if request.options.get("take_over") else home.owner(create=False)["owner"]
    if not was_ended:
        _keep_stacks(request, folder, current, run_id)
    record, stopped = _stop_all(home, record, present, errors, lambda known: refresh(known, progress=request.progress))
    if not record.is_ended:
        record, _unused = record_cancelled(folder, record, request.progress)
    if errors:
        raise most_telling_error(errors)
    if was_ended:
        rest = "what was left of it was ended" if stopped else "nothing of it runs any more"
        request.progress.say(f"run {run_id} had ended already ({record.outcome}); {rest}")
    else:
        _say_cancelled(request, record, present)
    return lease_guard.delete_after_end(
        request,
        home,
        run_id,
        build_cancel_result(record, folder, changed=stopped or not was_ended),
        str(record.outcome),
    )


def _stop_all(
    home: StateHome,
    record: RunRecord,
    remotes: t.Sequence[NodeClient],
    errors: dict[str, MusterError],
    refresh: t.Callable[[RunRecord], RunRecord],
) -> tuple[RunRecord, bool]:
    """Stop a run on these nodes until nothing of it is there; return its record, and whether anything was stopped.

    :param errors: those of nodes so far; more are added.
    :raises MusterError: where it is still running, or may be.
    """
    from .refresh import wait_for_follower

    stopped, run_id, grace = False, record.run_id, read_grace_s(record.job)
    for _look in range(_LOOKS):
        answers, failed = gang.stop_gang(remotes, run_id, grace + 20)
        errors.update(failed)
        if errors and not record.is_ended:
            raise _half_cancelled(run_id, sorted(answers), errors)
        _require_gone(run_id, answers)
        record = refresh(wait_for_follower(home, record, _FOLLOWER_S))
        # Its follower may have started a node again that it took for lost, just before it knew of the cancel.
        if not any(answer["stopped"] for answer in answers.values()):
            return record, stopped
        stopped = True
    problem = f"run {run_id} was stopped {_LOOKS} times, and was started again each time"
    raise MusterError(problem, "End the train command that follows it, then run cancel again")


def _check_cancel(
    request: RunRequest, record: RunRecord, present: t.Sequence[NodeClient], errors: t.Mapping[str, MusterError]
) -> Result:
    """Say what a cancel would stop, and change nothing.

    :raises MusterError: where it would not reach all hosts of a run that has not ended.
    """
    names = ", ".join(sorted(remote.name for remote in present)) or "no host"
    if errors and not record.is_ended:
        problem, silent = most_telling_error(errors), ", ".join(sorted(errors))
        said = f"run {record.run_id} would be stopped on {names}, and could still be running on {silent}"
        raise MusterError(f"{said}: {problem.message}", "Run cancel when the host answers")
    said = f"had ended already ({record.outcome})" if record.is_ended else f"would be stopped on {names}"
    request.progress.say(f"run {record.run_id} {said}; nothing was changed")
    return {"changed": not record.is_ended, "run_id": record.run_id}


def _keep_stacks(request: RunRequest, folder: pathlib.Path, remotes: t.Sequence[NodeClient], run_id: str) -> None:
    """Keep where the ranks of a run stand that makes no steps, before they are stopped; say it."""
    from ..movement import read_movement
    from ..stacks import describe_stacks, keep_stacks

    movement, said = read_movement(folder, time.time())
    stood = ""
    # A run is stopped whatever the controller's disk can take.
    with contextlib.suppress(OSError):
        stood = describe_stacks(keep_stacks(remotes, run_id, folder)) if movement == "stalled" else ""
    if stood:
        request.progress.say(f"run {run_id} stands, {said}: {stood}. Their stacks are in {folder / 'logs'}")


def _say_cancelled(request: RunRequest, record: RunRecord, remotes: t.Sequence[NodeClient]) -> None:
    seen = _find_checkpoints(record, remotes) if record.checkpoint else {}
    request.progress.say(commands.describe_cancelled(record, ", ".join(record.hosts), seen))


def _require_gone(run_id: str, answers: t.Mapping[str, t.Mapping[str, t.Any]]) -> None:
    """Raise when processes of a run that was stopped are still there."""
    pids = {name: ", ".join(map(str, answer["left"])) for name, answer in sorted(answers.items()) if answer["left"]}
    left = [f"{name} (pid {told})" for name, told in pids.items()]
    if left:
        raise MusterError(
            f"run {run_id} was stopped, and processes of it could not be ended on {', '.join(left)}",
            "Look there what they wait for (a file system that hangs), then run cancel again",
        )


def _find_checkpoints(record: RunRecord, remotes: t.Sequence[NodeClient]) -> dict[str, SeenCheckpoint]:
    """Return the newest checkpoint of a stopped run on each node that answers."""
    try:
        wanted = job_checkpoints.checkpoint_to_find(load_recorded_job(record), record.run_id)
    except InputError:
        # Of another version, which knows more options: it is stopped all the same.
        return {}
    if wanted is None:
        return {}
    answers, _unused = on_each_node(
        remotes, lambda remote: NodeReport.from_dict(remote.call("info", run_id=record.run_id, checkpoints=wanted))
    )
    # In the order of the run's nodes.
    return agree(
        {remote.name: seen for remote in remotes if (found := answers.get(remote.name)) and (seen := found.checkpoint)}
    )


def _half_cancelled(run_id: str, stopped: t.Sequence[str], errors: t.Mapping[str, MusterError]) -> MusterError:
    """Return the error of a cancel that did not reach all hosts: the run is not recorded as cancelled."""
    problem = most_telling_error(errors)
    again = problem.fix or "Look there why it cannot be stopped, then run cancel again"
    if isinstance(problem, UnreachableError):
        again = "Run cancel again when the host answers"
    done = f"stopped on {', '.join(stopped)}" if stopped else "not stopped on any host"
    return MusterError(
        f"run {run_id} is {done}, and may still be running on {', '.join(sorted(errors))}: {problem.message}",
        again,
    )


def _parse_drill(
    request: RunRequest, job: Job, found: t.Sequence[hosts_plan.TrainingHost], source: CodeSource
) -> drill.Drill | None:
    value = request.options.get("drill")
    if not value:
        return None
    from .....module_utils._model import drill

    parsed = drill.parse_drill(value, job.world_size, [host.name for host in found], job.nproc)
    if not parsed.cut_s:
        drill.check_provable(job)
        drill.check_reported(job, read_code_texts(source))
    elif next(host.connection for host in found if host.name == parsed.node) == "local":
        problem = f"cut would cut off this controller: {parsed.node} has ansible_connection: local"
        raise InputError("drill.target", problem, "Drill a node that is reached over SSH, or use target: host")
    return parsed


def _check_cut(plan: HostsPlan, drilling: drill.Drill | None) -> None:
    """Refuse a cut that its node cannot carry out, before anything is started."""
    if drilling is not None and drilling.cut_s:
        remote = next(remote for remote in plan.remotes if remote.name == drilling.node)
        remote.call("cut", seconds=drilling.cut_s, check=True)


def _build_plan(asked: RequestedRun, found: list[hosts_plan.TrainingHost]) -> HostsPlan:
    """Ask all hosts at once and apply every rule; raises before anything was written."""
    request, home, job, run_id = asked.request, asked.home, asked.job, asked.run_id
    remotes = request.connect([host.name for host in found])
    reserve = None if request.check else build_owner_mark(request, home, job)
    known = files.read_json(home.folder / AGENTS_FILE) or {}
    for remote in remotes:
        remote.owner = reserve["owner"] if reserve else None
        # An agent that was there the last time answers sooner than one that is sent along.
        remote.program = next(
            (at for at in [known.get(remote.name)] if at and agent_package.is_current_version(at)), None
        )
    by_name = {host.name: (index, host) for index, host in enumerate(found)}

    def ask(remote: NodeClient) -> tuple[NodeReport, float]:
        index, host = by_name[remote.name]
        began = time.time()
        answer = remote.call("info", **hosts_plan.build_info_request(job, index, host, run_id, asked.source, reserve))
        # The node read its clock about half-way between our two readings.
        return NodeReport.from_dict(answer), answer["time"] - (began + time.time()) / 2

    answers, errors = on_each_node(remotes, ask)
    reports = {host.name: answers[host.name][0] for host in found if host.name in answers}
    try:
        if errors:
            raise _with_way_around(request, job, errors)
        found = _settle_addresses(asked, found, remotes, reports)
        reserved = reports[found[0].name].reserved
        if reserved:
            raise RefusedError(reserved, "Follow or cancel it there, or take it over with muster_take_over: true")
        skews = {host.name: answers[host.name][1] for host in found}
        owner = _expected_owner(home, request.options.get("take_over"), reports)
        results = checks.check_gang(job, reports, skews, run_id, owner)
        checks.raise_first_failure(results)
        return _check_network(asked, found, remotes, reports, results)
    except MusterError:
        _remove_owner_mark(remotes[0], reports.get(found[0].name), run_id)
        raise


def _with_way_around(request: RunRequest, job: Job, errors: t.Mapping[str, MusterError]) -> MusterError:
    """Return the error of hosts that cannot take part, with how to run on others where the play has enough."""
    problem = most_telling_error(errors)
    if len(request.hosts) - len(errors) >= job.nodes:
        left_out = ":".join(f"!{name}" for name in sorted(errors))
        way = f"leave out what does not answer: --limit 'all:{left_out}'"
        problem.fix = f"{problem.fix.rstrip('.')}, or {way}" if problem.fix else f"Or {way}"
    return problem


def _settle_addresses(
    asked: RequestedRun,
    found: list[hosts_plan.TrainingHost],
    remotes: list[NodeClient],
    reports: dict[str, NodeReport],
) -> list[hosts_plan.TrainingHost]:
    """Return the hosts with their own addresses; ``reports`` get what holds for addresses that were not asked about."""
    settled = addresses.settle_addresses(found, reports, asked.job)
    pairs = zip(found, settled, strict=True)
    changed = {host.name: (index, host) for index, (old, host) in enumerate(pairs) if old.address != host.address}

    def ask(remote: NodeClient) -> NodeReport:
        index, host = changed[remote.name]
        request = hosts_plan.build_info_request(asked.job, index, host, asked.run_id, asked.source, None)
        return NodeReport.from_dict(remote.call("info", **request))

    answers, errors = on_each_node([remote for remote in remotes if remote.name in changed], ask)
    if errors:
        raise most_telling_error(errors)
    for name, report in answers.items():
        reports[name] = dataclasses.replace(reports[name], interface=report.interface, ports=report.ports)
    return settled


def _remove_owner_mark(first: NodeClient, report: NodeReport | None, run_id: str) -> None:
    """Remove the first host's owner mark if it was set just now; a running run keeps its own."""
    if report and report.reserved == "" and not report.claim:
        gang.undo_start([first], run_id, fresh=not report.units)


def _check_network(
    asked: RequestedRun,
    found: list[hosts_plan.TrainingHost],
    remotes: list[NodeClient],
    reports: dict[str, NodeReport],
    results: list[checks.Check],
) -> HostsPlan:
    """Return the plan when the network of the nodes allows the job."""
    job, names, run_id = asked.job, [host.name for host in found], asked.run_id
    verdicts = fabric_file.read_verdicts(asked.home.folder)
    planned = plan_hosts_network(job, names, verdicts, asked.request.environment)
    derived = advice.derive_advice(
        job, bandwidth_gb_s=planned.bandwidth_gb_s, prices_usd_per_hour=[host.price_usd_per_hour for host in found]
    )
    kinds = {host.connection for host in found}
    derived.update({"connection": "/".join(sorted(kinds)), "lane": hosts_plan.network_lane(found), "run_id": run_id})
    return HostsPlan(job, run_id, found, asked.source, remotes, reports, results, derived, planned)


def _expected_owner(home: StateHome, take_over: t.Any, reports: t.Mapping[str, NodeReport]) -> str:
    """Return the owner to compare nodes with: this controller, or with ``take_over`` the present owner of the run."""
    if take_over:
        held = [report.claim.owner for report in reports.values() if report.claim]
        return next((owner for owner in held if owner), "")
    return home.owner(create=False)["owner"]
