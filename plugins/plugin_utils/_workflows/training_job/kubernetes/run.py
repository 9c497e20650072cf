# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The runner of ``training_job`` on Kubernetes: read facts -> place -> test the network -> submit -> follow ->
record.
"""

from __future__ import annotations

import dataclasses
import functools
import time
import typing as t

from .....module_utils._model import advice, commands, drill, job_checkpoints
from .....module_utils._model.errors import InputError, MusterError, TransportError
from .....module_utils._model.job import Job, to_yaml_names
from .....module_utils._model.network_plan import NetworkPlan
from .....module_utils._model.run_record import STANDING, BackendRef, RunRecord, State
from .....module_utils._model.timestamps import parse_time
from .....module_utils._node import files
from ...._kube.api.client import Client
from ...._kube.api.kinds import KubeObject
from ...._kube.jobs.spec import ATTEMPT_LABEL, KubePlan
from ...._kube.objects import status
from ...._kube.placement import admission
from ...shared import cluster_identity, run_record
from ...shared.progress import say_if_killed
from ...shared.request import Dict, Result, RunRequest
from ...shared.state_dir import StateHome
from .. import fabric_file, image_pin
from .. import source as code_source
from ..announce import announce, build_sender
from ..changes import describe_changes, find_template, refuse_other_job
from ..explain import explain_end
from ..follower import Follower, RunOutcome
from ..image_pin import JobImage
from ..job_secrets import external_secrets
from ..job_secrets import leases as secret_leases
from ..job_secrets import values as secrets
from ..load import load_recorded_job
from ..monitoring import push
from ..object_stores import pod_store
from ..object_stores.pod_store import PodStore
from ..outcome import (
    add_drill,
    add_problem,
    build_result,
    build_unfollowed_result,
    check_attendance,
    describe_unwritten,
    record_end,
)
from ..requested import RequestedRun, open_run
from ..software import add_software
from ..trackers import step_log
from ..transport import TransportWatch
from . import cluster_facts, leader_lease, lease_guard, log_recovery, submit
from . import plan as kubernetes_plan
from .cluster_facts import ClusterFacts
from .delete import DELETION_S, delete_run, delete_secret, wait_for_pods
from .follower import ClusterFollower
from .leader_lease import LeaderLease
from .lease_guard import ClusterLeaseGuard
from .plan import ClusterDecision
from .timestamps import admission_time
from .watches import ClusterWatches


@dataclasses.dataclass(frozen=True)
class ClusterRun:
    """A requested run with what was decided of it on its cluster."""

    asked: RequestedRun
    client: Client
    decision: ClusterDecision
    store: PodStore | None = None
    image: JobImage | None = None
    _plans: dict[int, KubePlan] = dataclasses.field(default_factory=dict, repr=False)

    def find_live(self) -> KubeObject | None:
        """Return the object that runs it, None when there is none.

        The object that the run's record names is read first: the job may name another engine than it was started with.
        """
        plan, before = self.plan(self.asked.next_attempt), self.asked.before
        if before is not None and not before.is_ended and before.backend_ref:
            found = submit.find_recorded(self.client, before, plan.namespace)
            if found is not None:
                return found
        return self.client.get(kubernetes_plan.build_objects(plan)[-1], plan.name, plan.namespace)

    def describe_vanishing(self) -> t.Iterator[str]:
        """Yield that the run's checkpoints go with its pods or nodes, with what that costs on rented ones."""
        names = self.decision.placement.possible_nodes
        leases = lease_guard.find_leases(self.asked.home, self.asked.request.hostvars, names)
        if said := job_checkpoints.describe_vanishing(self.decision.job, lease_guard.find_prices(leases)):
            yield said

    def plan(self, attempt: int) -> KubePlan:
        """Return the plan of a start whose first attempt has this number."""
        if attempt not in self._plans:
            asked = self.asked
            # Code is packed for it.
            plan = kubernetes_plan.build_plan(
                self.decision, asked.source, asked.run_id, asked.home.folder.name, attempt
            )
            plan = self.store.complete(plan) if self.store else plan
            plan = self.image.complete(plan) if self.image else plan
            self._plans[attempt] = dataclasses.replace(plan, followed=bool(asked.request.options["wait"]))
        return self._plans[attempt]


def run(request: RunRequest, home: StateHome, job: Job) -> Result:
    """Bring the run to the asked state and return the module's result."""
    with open_run(request, home, job) as asked:
        asked = _complete_record(_leave_former_cluster(asked))
        before = asked.before
        if before and before.is_ended and before.outcome == "succeeded":
            _require_same_job(asked, before)
            asked.say_succeeded()
            done = build_result(before, asked.folder, changed=False)
            return lease_guard.delete_after_end(
                request, home, before, lambda: _open_cluster(asked)[0], done, before.outcome
            )
        resolved = secrets.resolve_secrets(asked.job, home)
        watched = push.open_bound(home, asked.job, asked.open_cluster, request.options.get("reports_url") or "")
        run, drilling = _decide(asked)
        live = run.find_live()
        # What runs already has its nodes: one of them may be lost, and the run is followed all the same.
        if not _continues(run, live):
            submit.require_recorded_end(asked.run_id, before, live, bool(request.options.get("recreate")))
            run = _pin_image(run)
            if run.decision.problem:
                raise run.decision.problem
        unlimited = job_checkpoints.describe_unlimited(run.decision.job)
        for warning in filter(None, (*run.decision.warnings, *run.describe_vanishing(), unlimited)):
            request.progress.say(f"warning: {warning}")
        if request.check:
            return _check(run)
        resolved = run.image.add_login(resolved) if run.image else resolved
        take_over = bool(request.options.get("take_over"))
        with (
            asked.lock(),
            leader_lease.hold_lease(run.client, run.plan(1), home, request.progress, take_over) as claim,
            secret_leases.hold(request, home, asked.run_id, resolved) as full,
            step_log.log_steps(run.store.tracking if run.store else None, asked.folder, request.progress),
            push.send_metrics(watched, asked.folder, request.progress),
        ):
            return _start_or_follow(run, full, drilling, claim)


def _require_same_job(asked: RequestedRun, before: RunRecord) -> None:
    """Refuse another job under the name of a run that has succeeded, and its continuation, which hosts alone have."""
    differs = describe_changes(before, asked.job, asked.source.code_sha256)
    if not differs or not asked.request.options.get("run_id"):
        return
    fix = "Name another run_id (muster_run_id). It resumes where checkpoints.path names a folder with checkpoints"
    if asked.request.options.get("extend"):
        raise InputError("extend", "is for plain hosts: in pods a run that has succeeded is over", fix)
    raise refuse_other_job(asked.run_id, differs, fix)


def _complete_record(asked: RequestedRun) -> RequestedRun:
    """Return the run with the record of its end completed by what its pods' logs hold, where some was not read."""
    before, progress = asked.before, asked.request.progress
    if asked.request.check or before is None or not before.is_ended or not before.backend_ref:
        return asked
    if not any(gap.is_end for gap in log_recovery.find_gaps(asked.folder)):
        return asked
    try:
        client, _namespace = _open_cluster(asked)
        with asked.home.lock(asked.run_id):
            # Read anew: another process may have completed it.
            follower = Follower(load_recorded_job(before), asked.run_id, asked.folder, progress, lambda _it: None, None)
            completed = log_recovery.complete_record(client, before, follower)
    except MusterError as error:
        progress.say(f"warning: run {asked.run_id}: what was not read of its logs cannot be read now: {error}")
        return asked
    return dataclasses.replace(asked, before=completed)


def _leave_former_cluster(asked: RequestedRun) -> RequestedRun:
    """Return the run as a new one where it succeeded on another cluster: nothing of it is on this one.

    Where this one cannot be asked, it is taken for the same.
    """
    before = asked.before
    known = before.backend_ref.cluster_id if before and before.outcome == "succeeded" and before.backend_ref else None
    if not known or asked.request.options.get("cluster_id"):
        return asked
    try:
        seen = cluster_identity.other_cluster_id(_open_cluster(asked)[0], {"cluster_id": known})
    except MusterError:
        return asked
    return asked.set_aside(known, seen) if seen else asked


def _open_cluster(asked: RequestedRun) -> tuple[Client, str]:
    """Return a client for the job's cluster and the namespace of the job."""
    client = asked.open_cluster()
    return client, asked.job.placement.namespace or client.namespace


def _decide(asked: RequestedRun) -> tuple[ClusterRun, drill.Drill | None]:
    """Return the run with what its cluster's facts decide, and the drill that was asked for."""
    request, home, job = asked.request, asked.home, asked.job
    client, namespace = _open_cluster(asked)
    if not request.options.get("cluster_id"):
        # Who names the cluster by its id knows better than what was written down.
        cluster_identity.require_same_cluster(client, asked.before.to_dict() if asked.before else None)
        if asked.before is None or asked.before.is_ended:
            cluster_identity.require_ledger_cluster(client, home)
    cluster_facts.require_engine(client, job)
    external_secrets.require(client, job, namespace)
    facts = cluster_facts.read_cluster_facts(client, job, namespace)
    decision = _decide_on(asked, client, job, namespace, facts)
    for note in decision.notes:
        request.progress.say(note)
    drilling = _parse_drill(request.options.get("drill"), job, facts)
    if drilling is not None:
        drill.check_reported(job, code_source.read_code_texts(asked.source))
    # Of a job that no node can take, the decision has the problem.
    fitting = None if facts.nodes is None else [item.node for item in decision.placement.usable_nodes]
    store = pod_store.open_store(home, job, fitting, asked.run_id, client)
    image = image_pin.find_image(home, job, lambda: client)
    return ClusterRun(asked, client, decision, store, image), drilling


def _decide_on(
    asked: RequestedRun, client: Client, job: Job, namespace: str, facts: ClusterFacts
) -> kubernetes_plan.ClusterDecision:
    verdicts = fabric_file.read_verdicts(asked.home.folder, client.cluster_id())
    return kubernetes_plan.decide(job, namespace, facts, verdicts=verdicts, environment=asked.request.environment)


def _pin_image(run: ClusterRun) -> ClusterRun:
    """Return the run with the digest that its image's tag stands for now, on nodes that the image is made for.

    A start asks once: all of its attempts, and all ranks, have one image.
    """
    if run.image is None:
        return run
    progress, facts, decision = run.asked.request.progress, run.decision.facts, run.decision
    names = [item.node for item in decision.placement.usable_nodes]
    run.image.require_reachable(names, run.client.cluster_id())
    image = run.image.pin(progress)
    fitting, others = image.split(facts.nodes or ())
    image.require_fitting(fitting, others)
    if others:
        made = ", ".join(image.architectures)
        progress.say(f"image {image.image} is made for {made}: {', '.join(others)} cannot run it, and is left out")
        fewer = dataclasses.replace(facts, nodes=fitting)
        decision = _decide_on(run.asked, run.client, run.asked.job, decision.namespace, fewer)
    return dataclasses.replace(run, image=image, decision=decision, _plans={})


def _parse_drill(value: t.Any, job: Job, facts: ClusterFacts) -> drill.Drill | None:
    nodes = None if facts.nodes is None else [str(item["metadata"]["name"]) for item in facts.nodes]
    return drill.parse_pod_drill(value, job, nodes) if value else None


def _check(run: ClusterRun) -> Result:
    """Let the server judge everything without making it."""
    plan, live = run.plan(run.asked.next_attempt), run.find_live()
    follows = _continues(run, live)
    if follows:
        leader_lease.require_free(run.client, plan, run.asked.home, bool(run.asked.request.options.get("take_over")))
    else:
        submit.dry_run(run.client, plan, live)
        for line in admission.predict(run.client, plan):
            run.asked.request.progress.say(f"warning: {line}")
    run.asked.say_plan(not follows, f"in namespace {run.decision.namespace}")
    checks = {"ok": True, "exit_code": 0, "checks": [], "failures": []}
    return {
        "changed": not follows,
        "run_id": plan.run_id,
        "derived": _derive(plan, run.decision.network),
        "checks": checks,
    }


def _start_or_follow(
    run: ClusterRun, values: secrets.JobSecrets, drilling: drill.Drill | None, claim: LeaderLease
) -> Result:
    asked, client, network_plan = run.asked, run.client, run.decision.network
    request, before, folder, context = asked.request, asked.before, asked.folder, asked.request.options.get("context")
    plan, live = run.plan(asked.next_attempt), run.find_live()
    follows = _continues(run, live)
    if live is not None and follows:
        asked.require_one_follower()
        submit.repair_owners(client, plan, live, known=bool(before and before.backend_ref and before.backend_ref.uid))
        plan = run.plan(before.generation if before else int(live["metadata"]["labels"][ATTEMPT_LABEL]))
    current = _open_record(run, plan, follows)
    size = f"run {plan.run_id}: {plan.job.nodes} pods × {plan.job.nproc} = world size {plan.job.world_size}"
    details = (f"queue {plan.queue.name}" if plan.queue else "", job_checkpoints.describe_folder(plan.job))
    parts = [size, f"{plan.job.engine} in namespace {plan.namespace}", *(part for part in details if part)]
    announce(request.progress, parts, _derive(plan, network_plan), network_plan, running=follows)
    if follows:
        reference = submit.build_reference(t.cast(KubeObject, live), plan, context)
        known = current.backend_ref.cluster_id if current.backend_ref else None
    else:
        _delete_former_start(run, plan, live)
        submit.test_network(client, plan, values, asked.home, request.progress, run.decision)
        # A run that is followed has its Secret; what of it is signed is not signed again.
        values = submit.add_store(client, plan, values, run.store, request.progress)
        plan = dataclasses.replace(plan, begun=int(time.time()))
        reference, known = submit.build_reference(kubernetes_plan.build_objects(plan)[-1], plan, context), None
    reference = dataclasses.replace(reference, cluster_id=known or client.cluster_id())
    current = dataclasses.replace(current, backend_ref=reference)
    files.private_dir(folder)
    fabric_file.write_verdict(folder, network_plan)
    supporting = submit.SupportingObjects(client, plan, folder, submit.build_run_secrets(plan, values))
    if follows and status.read_state(t.cast(KubeObject, live)).phase == "waiting":
        supporting.restore(t.cast(KubeObject, live), request.progress)
    # If the controller is killed from here on, the run can still be found, followed and cancelled.
    run_record.write_record(folder, current)
    with say_if_killed(commands.describe_left(current, commands.STARTING, request.options["cluster"])):
        if not follows:
            supporting.keep(kubernetes_plan.build_objects(plan)[:-1])
            live, current = _submit(run, plan, values, current)
        if not request.options["wait"]:
            request.progress.say(commands.describe_left(current, commands.NOT_FOLLOWED, request.options["cluster"]))
            return build_result(current, folder, changed=not follows)
        claim.attach(t.cast(KubeObject, live))
        restore = functools.partial(supporting.restore, t.cast(KubeObject, live), request.progress)
        return _follow(run, plan, t.cast(KubeObject, live), current, drilling, claim, restore, changed=not follows)


def _submit(
    run: ClusterRun, plan: KubePlan, values: secrets.JobSecrets, record: RunRecord
) -> tuple[KubeObject, RunRecord]:
    """Make the run's objects; return the one that runs it, and the run's record."""
    asked, now = run.asked, t.cast(str, run_record.format_time(time.time()))
    record = dataclasses.replace(record, submitted_at=asked.before.submitted_at if asked.before else now, queued_at=now)
    digest = code_source.job_digest(plan.job, asked.source)
    try:
        live, supporting = submit.submit(run.client, plan, values, digest)
    except BaseException:
        submit.restore_record(asked.folder, asked.before)
        raise
    # From here on the job owns them: deleting the job deletes them.
    submit.set_owners(run.client, supporting, live)
    reference = dataclasses.replace(t.cast(BackendRef, record.backend_ref), uid=live["metadata"].get("uid"))
    record = dataclasses.replace(record, backend_ref=reference)
    run_record.write_record(asked.folder, record)
    line = {"at": time.time(), "kind": "submitted", "attempt": plan.first_attempt}
    files.append_json(asked.folder / "events.jsonl", line)
    return live, record


def _delete_former_start(run: ClusterRun, plan: KubePlan, live: KubeObject | None) -> None:
    """Remove the former start of the run and wait for its pods: two gangs would write the same checkpoints."""
    request, run_id = run.asked.request, plan.run_id
    if live is not None and status.read_state(live).phase == "waiting":
        # What runs well is not stopped for what could not take its place.
        submit.dry_run(run.client, plan, live)
        request.progress.say(f"run {run_id} is running with another job: stopping it and starting this one")
    within_s = plan.job.checkpoints.grace_s + DELETION_S
    if live is not None:
        reference = submit.build_reference(live, plan, request.options.get("context"))
        delete_run(run.client, reference, run_id, within_s, request.progress)
    elif run.asked.before is not None:
        # Its object may be gone before its pods are.
        wait_for_pods(run.client, plan.namespace, run_id, within_s, request.progress)


def _continues(run: ClusterRun, live: KubeObject | None) -> bool:
    """Return whether the run is there to be followed, and not to be started anew.

    :raises RefusedError: when it runs another job and that one is not to be recreated.
    """
    asked = run.asked
    # Without a record another controller started it: its end is read, not repeated.
    ended_unseen = live is not None and (asked.before is None or not asked.before.is_ended)
    if live is None or not (ended_unseen or status.read_state(live).phase == "waiting"):
        return False
    problem = submit.compare_job(live, asked.run_id, asked.before, run.decision.job, asked.source)
    if problem is None:
        return True
    if not asked.request.options.get("recreate") or not submit.is_run(live, asked.run_id):
        raise problem
    return False


def _follow(
    run: ClusterRun,
    plan: KubePlan,
    live: KubeObject,
    record: RunRecord,
    drilling: drill.Drill | None,
    claim: LeaderLease,
    restore: t.Callable[[], None],
    changed: bool,
) -> Result:
    request, folder, client = run.asked.request, run.asked.folder, run.client
    network_plan = run.decision.network
    reference = t.cast(BackendRef, record.backend_ref)
    watch = TransportWatch(plan.job, network_plan.verdicts, request.progress)
    guard = ClusterLeaseGuard(request, run.asked.home, plan.job, plan.run_id, client)

    def save(follower: Follower) -> None:
        nonlocal record
        cluster = t.cast(ClusterFollower, follower)
        names = sorted(set(cluster.nodes.values()))
        guard.bind_nodes(names, reference)
        current = dataclasses.replace(record, leases={**record.leases, **guard.tokens})
        current = run_record.update_record(current, cluster.story, guard.prices(names), time.time())
        current = add_software(watch.update(current, cluster.story), cluster.story, cluster.image_ids)
        record = dataclasses.replace(
            current,
            state=_state_now(cluster, current),
            admitted_at=current.admitted_at or run_record.format_time(cluster.admitted_at),
            image_digest=current.image_digest or next(iter(sorted(cluster.image_ids.values())), None),
            hosts=tuple(names),
            fabric=network_plan.on_nodes(names).reference or current.fabric,
        )
        run_record.write_record(folder, record)

    def over() -> str:
        if claim.lost_to:
            follower.record_event("taken_over", detail=claim.lost_to)
        claim.check()
        return guard.stop_reason()

    sources = ClusterWatches(client, plan, live)
    follower = ClusterFollower(plan.job, plan.run_id, folder, sources, request.progress, save, drilling, over)
    if not changed:
        follower.record_event("followed")
    follower.restore, follower.notify = restore, build_sender(request, plan.run_id)
    if record.admitted_at:
        # An earlier follower has recorded its start: its time limit does not begin anew.
        follower.admitted_at = admission_time(follower.story, parse_time(record.admitted_at))
    try:
        with say_if_killed(commands.describe_left(record, commands.UNFOLLOWED, request.options["cluster"])):
            outcome = follower.run()
    except TransportError as error:
        # The cluster does not let it be followed any more: the run knows nothing of that.
        return build_unfollowed_result(record, folder, changed, error)
    except OSError as error:
        raise describe_unwritten(plan.run_id, folder, error) from error
    fabric_file.write_verdict(folder, network_plan.on_nodes(record.hosts))
    return _conclude(plan, follower, outcome, record, guard, changed)


def _state_now(follower: ClusterFollower, record: RunRecord) -> State:
    """Return the state of a followed run: also one that no rank of it tells."""
    if record.is_ended:
        return record.state
    if follower.is_ending or follower.is_done:
        return "ending"
    if follower.pending.suspended:
        return "queued"
    return "restarting" if follower.is_between else record.state


def _conclude(
    plan: KubePlan,
    follower: ClusterFollower,
    outcome: RunOutcome,
    record: RunRecord,
    guard: ClusterLeaseGuard,
    changed: bool,
) -> Result:
    """Delete what would run on, complete the run's history, record its end and release its machines."""
    client, folder, progress = follower.sources.client, follower.folder, follower.progress
    problem, told = None, status.read_state(follower.main).phase
    if told == "waiting":
        # It ended by a rule of ours: the engine would go on. Before anything is read: its pods may hold the place.
        within_s = plan.job.checkpoints.grace_s + DELETION_S
        try:
            delete_run(client, t.cast(BackendRef, record.backend_ref), plan.run_id, within_s, progress)
        except MusterError as error:
            # The run has ended all the same, and its machines go back.
            problem = error
    else:
        delete_secret(client, plan, plan.secret, progress)
    log_recovery.recover_logs(client, plan, follower, told == "done")
    delete_secret(client, plan, plan.pull_secret, progress)
    external_secrets.delete(client, plan, progress)
    outcome = _keep_stacks(follower, outcome)
    outcome = explain_end(folder, check_attendance(plan.job, follower, outcome), "kubernetes")
    ended = record_end(follower, outcome, record, guard.prices(follower.nodes.values()), follower.ended_at())
    result = add_drill(build_result(ended, folder, changed), follower, ended)
    return guard.delete_due(add_problem(result, problem), outcome.outcome)


def _keep_stacks(follower: ClusterFollower, outcome: RunOutcome) -> RunOutcome:
    """Return the end of a run that stood with where its ranks did, as their pods told before they stopped them."""
    if follower.stalled_s is None and outcome.cause not in STANDING:
        return outcome
    # Late: few runs stand.
    from ..stacks import describe_stacks, keep_recorded_stacks

    since = follower.story.attempts[-1].started_at if follower.story.attempts else 0.0
    stood = describe_stacks(keep_recorded_stacks(follower.kept_events(), since, follower.folder))
    return dataclasses.replace(outcome, detail=f"{outcome.detail}; {stood}") if stood else outcome


def _derive(plan: KubePlan, planned: NetworkPlan) -> Result:
    prices = [None] * plan.job.nodes
    derived = advice.derive_advice(plan.job, bandwidth_gb_s=planned.bandwidth_gb_s, prices_usd_per_hour=prices)
    return {**derived, "connection": "kubernetes", "lane": "network", "run_id": plan.run_id}


def _open_record(run: ClusterRun, plan: KubePlan, follows: bool) -> RunRecord:
    source, before, planned = run.asked.source, run.asked.before, run.decision.network
    values: Dict = {
        "backend": "kubernetes",
        "engine": plan.job.engine,
        "launcher": plan.job.launcher,
        "code_sha256": source.code_sha256,
        "versions": {"commit": source.commit} if source.commit else {},
        # Who may not read nodes is a member of a team: the report advises nothing of an administrator's.
        "derived": {**_derive(plan, planned), **({"reads_nodes": False} if run.decision.facts.nodes is None else {})},
        "fabric": planned.reference,
        "generation": plan.first_attempt,
        "hosts": (),
        "command_line": run.asked.request.command_line,
        "unrepeated": run.asked.request.unrepeated or None,
        "catalogue_template": find_template(
            run.asked.request.options.get("catalogue_template"), before, plan.job, source.code_sha256
        ),
        **({} if follows else {"image": plan.pinned}),
    }
    job = to_yaml_names(plan.job)
    if before is None:
        return run_record.new_record(plan.run_id, job, time.time(), **values)
    again = run_record.reopen_record(before, "running" if follows else "starting", job)
    if not follows:
        # Its time begins anew, and so may its image.
        again = dataclasses.replace(again, admitted_at=None, image=None, image_digest=None)
    return dataclasses.replace(again, **values)
