# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The runner of ``training_job`` on Kubernetes: read facts -> place -> test the network -> submit -> follow -> record.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import dataclasses
import functools
import pathlib
import tempfile
import time
import typing as t

from .....module_utils._model import advice, commands, drill, job_backends, job_checkpoints
from .....module_utils._model.errors import MusterError, TransportError
from .....module_utils._model.job import Job, to_yaml_names
from .....module_utils._model.run_record import BackendRef, RunRecord
from .....module_utils._model.timestamps import parse_time
from .....module_utils._node import files
from ...._kube.api.client import Client
from ...._kube.api.kinds import KubeObject
from ...._kube.jobs.spec import ATTEMPT_LABEL, KubePlan
from ...._kube.objects import status
from ...shared import cluster_identity, kube_connection, run_record
from ...shared.progress import say_if_killed
from ...shared.request import Dict, Result, RunRequest
from ...shared.state_dir import StateHome, delete_unstarted, load_record
from .. import network, pod_store
from .. import source as code_source
from ..announce import announce
from ..explain import explain_end
from ..follower import Follower, RunOutcome
from ..job_secrets import leases as secret_leases
from ..job_secrets import values as secrets
from ..load import find_drill_id
from ..network import NetworkPlan
from ..outcome import (
    add_drill,
    add_problem,
    build_result,
    build_unfollowed_result,
    check_attendance,
    record_end,
)
from ..pod_store import PodStore
from ..software import add_software
from ..transport import TransportWatch
from . import cluster_facts, leader_lease, lease_guard, log_recovery, submit
from . import plan as kubernetes_plan
from .cluster_facts import ClusterFacts
from .delete import DELETION_S, delete_run, delete_secret, wait_for_pods
from .follower import ClusterFollower
from .leader_lease import LeaderLease
from .lease_guard import ClusterLeaseGuard
from .timestamps import admission_time
from .watches import ClusterWatches


@dataclasses.dataclass(frozen=True)
class ClusterRun:
    """What is to run and what the cluster said of itself before anything was decided. ``before``: the run's record."""

    request: RunRequest
    home: StateHome
    job: Job
    source: code_source.CodeSource
    run_id: str
    client: Client
    facts: ClusterFacts
    placement: kubernetes_plan.PlacementDecision
    network: NetworkPlan
    before: RunRecord | None
    store: PodStore | None = None
    _plans: dict[int, KubePlan] = dataclasses.field(default_factory=dict, repr=False)

    @property
    def folder(self) -> pathlib.Path:
        """The run's folder."""
        return self.home.run_folder(self.run_id)

    @property
    def next_attempt(self) -> int:
        """The number of the first attempt of a new start."""
        return (self.before.last_attempt if self.before else 0) + 1

    def find_live(self) -> KubeObject | None:
        """Return the object that runs it, None when there is none.

        The object that the run's record names is read first: the job may name another engine than it was started with.
        """
        made, before = self.plan(self.next_attempt), self.before
        if before is not None and not before.is_ended and before.backend_ref:
            found = submit.find_live(self.client, before.backend_ref)
            if found is not None:
                return found
        return self.client.get(kubernetes_plan.build_objects(made)[-1], made.name, made.namespace)

    def plan(self, attempt: int) -> KubePlan:
        """Return the plan of a start whose first attempt has this number."""
        if attempt not in self._plans:
            namespace = self.job.placement.namespace or self.client.namespace
            cluster = self.home.folder.name
            # Code is packed for it.
            start = self.run_id, cluster, namespace, attempt
            plan = kubernetes_plan.build_plan(self.job, self.source, *start, self.facts, self.placement, self.network)
            plan = self.store.complete(plan) if self.store else plan
            self._plans[attempt] = dataclasses.replace(plan, followed=bool(self.request.options["wait"]))
        return self._plans[attempt]


def run(request: RunRequest, home: StateHome, job: Job) -> Result:
    """Bring the run to the asked state and return the module's result."""
    lease_guard.require_follower(job, bool(request.options["wait"]))
    with tempfile.TemporaryDirectory(prefix="muster-") as nowhere:
        cache = pathlib.Path(nowhere) if request.check else home.folder / "git"
        source = code_source.read_source(job, request.base, cache, request.progress.say)
        run_id = str(request.options.get("run_id") or code_source.derive_run_id(job, source))
        if request.options.get("drill"):
            run_id = find_drill_id(home, run_id)
        folder = home.run_folder(run_id)
        before = load_record(folder)
        if before and before.is_ended and before.outcome == "succeeded":
            request.progress.say(f"run {run_id} has already succeeded; name another run_id to run it again")
            done = build_result(before, folder, changed=False)
            return lease_guard.delete_after_end(
                request, home, before, lambda: _open_for_job(request, job)[0], done, before.outcome
            )
        resolved = secrets.resolve_secrets(job, home)
        client, namespace = _open_for_job(request, job)
        if not request.options.get("cluster_id"):
            # Who names the cluster by its id knows better than what was written down.
            cluster_identity.require_same_cluster(client, before.to_dict() if before else None)
            if before is None or before.is_ended:
                cluster_identity.require_ledger_cluster(client, home)
        cluster_facts.require_engine(client, job)
        facts = cluster_facts.read_cluster_facts(client, job, namespace)
        job = cluster_facts.settle_network(client, job, facts, namespace, request.progress.say)
        placement = kubernetes_plan.decide_placement(job, facts)
        drilling = _parse_drill(request.options.get("drill"), job, facts)
        known = network.read_verdicts(home.folder)
        planned = kubernetes_plan.plan_network(job, placement, known, request.environment)
        fitting = [item.node for item in placement.nodes if not item.reasons]
        store = pod_store.open_store(home, job, fitting, run_id)
        asked = ClusterRun(request, home, job, source, run_id, client, facts, placement, planned, before, store)
        # What runs already has its nodes: one of them may be lost, and the run is followed all the same.
        live = asked.find_live()
        if not _continues(asked, live):
            submit.require_recorded_end(run_id, before, live, bool(request.options.get("recreate")))
            kubernetes_plan.require_runnable(job, facts, placement, namespace)
        for warning in (*facts.warnings, *job_backends.backend_warnings(job), *planned.warnings):
            request.progress.say(f"warning: {warning}")
        if request.check:
            return _check(asked)
        with home.lock(run_id):
            try:
                take_over = bool(request.options.get("take_over"))
                with (
                    leader_lease.hold_lease(client, asked.plan(1), home, request.progress, take_over) as claim,
                    secret_leases.hold(request, home, job, run_id, resolved) as full,
                ):
                    return _start_or_follow(asked, full, drilling, claim)
            finally:
                delete_unstarted(folder)


def _open_for_job(request: RunRequest, job: Job) -> tuple[Client, str]:
    context = job.placement.cluster
    client = kube_connection.open_client(request.options, request.base, request.progress.say, context=context)
    return client, job.placement.namespace or client.namespace


def _parse_drill(value: t.Any, job: Job, facts: ClusterFacts) -> drill.Drill | None:
    nodes = None if facts.nodes is None else [str(item["metadata"]["name"]) for item in facts.nodes]
    return drill.parse_pod_drill(value, job, nodes) if value else None


def _check(asked: ClusterRun) -> Result:
    """Let the server judge everything without making it."""
    made, live = asked.plan(asked.next_attempt), asked.find_live()
    follows = _continues(asked, live)
    if not follows:
        submit.dry_run(asked.client, made, live)
    checks = {"ok": True, "exit_code": 0, "checks": [], "failures": []}
    return {"changed": not follows, "run_id": asked.run_id, "derived": _derive(asked, made), "checks": checks}


def _start_or_follow(
    asked: ClusterRun, values: secrets.JobSecrets, drilling: drill.Drill | None, claim: LeaderLease
) -> Result:
    request, client, before, folder = asked.request, asked.client, asked.before, asked.folder
    context = request.options.get("context")
    made, live = asked.plan(asked.next_attempt), asked.find_live()
    follows = _continues(asked, live)
    if live is not None and follows:
        submit.repair_owners(client, made, live, known=bool(before and before.backend_ref and before.backend_ref.uid))
        made = asked.plan(before.generation if before else int(live["metadata"]["labels"][ATTEMPT_LABEL]))
    current = _open_record(asked, made, follows)
    size = f"run {made.run_id}: {made.job.nodes} pods × {made.job.nproc} = world size {made.job.world_size}"
    details = (f"queue {made.queue.name}" if made.queue else "", job_checkpoints.describe_folder(made.job))
    parts = [size, f"{made.job.engine} in namespace {made.namespace}", *(part for part in details if part)]
    announce(request.progress, parts, _derive(asked, made), asked.network, running=follows)
    if follows:
        reference = submit.build_reference(t.cast(KubeObject, live), made, context)
        known = current.backend_ref.cluster_id if current.backend_ref else None
    else:
        _delete_former_start(asked, made, live)
        submit.test_network(client, made, values, asked.home, request.progress, asked.placement, asked.facts)
        # A run that is followed has its Secret; what of it is signed is not signed again.
        values = submit.add_store(client, made, values, asked.store, request.progress)
        made = dataclasses.replace(made, begun=int(time.time()))
        reference, known = submit.build_reference(kubernetes_plan.build_objects(made)[-1], made, context), None
    reference = dataclasses.replace(reference, cluster_id=known or cluster_identity.read_cluster_id(client))
    current = dataclasses.replace(current, backend_ref=reference)
    files.private_dir(folder)
    network.write_verdict(folder, asked.network)
    supporting = submit.SupportingObjects(client, made, folder, submit.build_run_secrets(made, values))
    if follows and status.read_state(t.cast(KubeObject, live)).phase == "waiting":
        supporting.restore(t.cast(KubeObject, live), request.progress)
    # If the controller is killed from here on, the run can still be found, followed and cancelled.
    run_record.write_record(folder, current)
    with say_if_killed(commands.describe_left(current, commands.STARTING, request.options["cluster"])):
        if not follows:
            supporting.keep(kubernetes_plan.build_objects(made)[:-1])
            live, current = _submit(asked, made, values, current)
        if not request.options["wait"]:
            request.progress.say(commands.describe_left(current, commands.NOT_FOLLOWED, request.options["cluster"]))
            return build_result(current, folder, changed=not follows)
        claim.attach(t.cast(KubeObject, live))
        restore = functools.partial(supporting.restore, t.cast(KubeObject, live), request.progress)
        return _follow(asked, made, t.cast(KubeObject, live), current, drilling, claim, restore, changed=not follows)


def _submit(
    asked: ClusterRun, made: KubePlan, values: secrets.JobSecrets, record: RunRecord
) -> tuple[KubeObject, RunRecord]:
    """Make the run's objects; return the one that runs it, and the run's record."""
    folder, now = asked.folder, t.cast(str, run_record.format_time(time.time()))
    record = dataclasses.replace(record, submitted_at=now, queued_at=now)
    digest = code_source.job_digest(asked.job, asked.source)
    try:
        live, companions = submit.submit(asked.client, made, values, digest)
    except BaseException:
        submit.restore_record(folder, asked.before)
        raise
    # From here on the job owns them: deleting the job deletes them.
    submit.set_owners(asked.client, companions, live)
    reference = dataclasses.replace(t.cast(BackendRef, record.backend_ref), uid=live["metadata"].get("uid"))
    record = dataclasses.replace(record, backend_ref=reference)
    run_record.write_record(folder, record)
    line = {"at": time.time(), "kind": "submitted", "attempt": made.first_attempt}
    files.append_json(folder / "events.jsonl", line)
    return live, record


def _delete_former_start(asked: ClusterRun, made: KubePlan, live: KubeObject | None) -> None:
    """Remove the former start of the run and wait for its pods: two gangs would write the same checkpoints."""
    request = asked.request
    if live is not None and status.read_state(live).phase == "waiting":
        # What runs well is not stopped for what could not take its place.
        submit.dry_run(asked.client, made, live)
        request.progress.say(f"run {asked.run_id} is running with another job: stopping it and starting this one")
    within_s = asked.job.checkpoints.grace_s + DELETION_S
    if live is not None:
        reference = submit.build_reference(live, made, request.options.get("context"))
        delete_run(asked.client, reference, asked.run_id, within_s, request.progress)
    elif asked.before is not None:
        # Its object may be gone before its pods are.
        wait_for_pods(asked.client, made.namespace, asked.run_id, within_s, request.progress)


def _continues(asked: ClusterRun, live: KubeObject | None) -> bool:
    """Return whether the run is there to be followed, and not to be started anew.

    :raises RefusedError: when it runs another job and that one is not to be recreated.
    """
    # Without a record another controller started it: its end is read, not repeated.
    ended_unseen = live is not None and (asked.before is None or not asked.before.is_ended)
    if live is None or not (ended_unseen or status.read_state(live).phase == "waiting"):
        return False
    problem = submit.compare_job(live, asked.run_id, asked.before, asked.job, asked.source)
    if problem is None:
        return True
    if not asked.request.options.get("recreate") or not submit.is_run(live, asked.run_id):
        raise problem
    return False


def _follow(
    asked: ClusterRun,
    made: KubePlan,
    live: KubeObject,
    record: RunRecord,
    drilling: drill.Drill | None,
    claim: LeaderLease,
    restore: t.Callable[[], None],
    changed: bool,
) -> Result:
    request, client, folder = asked.request, asked.client, asked.folder
    reference = t.cast(BackendRef, record.backend_ref)
    watch = TransportWatch(asked.job, asked.network.verdicts, request.progress)
    guard = ClusterLeaseGuard(request, asked.home, made.job, made.run_id, client)

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
            state="queued" if cluster.pending.suspended and not current.is_ended else current.state,
            admitted_at=current.admitted_at or run_record.format_time(cluster.admitted_at),
            image_digest=current.image_digest or next(iter(sorted(cluster.image_ids.values())), None),
            hosts=tuple(names),
            fabric=asked.network.on_nodes(names).reference or current.fabric,
        )
        run_record.write_record(folder, record)

    def over() -> str:
        claim.check()
        return guard.stop_reason()

    sources = ClusterWatches(client, made, live)
    follower = ClusterFollower(made.job, made.run_id, folder, sources, request.progress, save, drilling, over)
    follower.restore = restore
    if record.admitted_at:
        # An earlier follower has recorded its start: its time limit does not begin anew.
        follower.admitted_at = admission_time(follower.story, parse_time(record.admitted_at))
    try:
        with say_if_killed(commands.describe_left(record, commands.UNFOLLOWED, request.options["cluster"])):
            outcome = follower.run()
    except TransportError as error:
        # The cluster does not let it be followed any more: the run knows nothing of that.
        return build_unfollowed_result(record, folder, changed, error)
    network.write_verdict(folder, asked.network.on_nodes(record.hosts))
    return _conclude(made, follower, outcome, record, guard, changed)


def _conclude(
    made: KubePlan,
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
        within_s = made.job.checkpoints.grace_s + DELETION_S
        try:
            delete_run(client, t.cast(BackendRef, record.backend_ref), made.run_id, within_s, progress)
        except MusterError as error:
            # The run has ended all the same, and its machines go back.
            problem = error
    else:
        delete_secret(client, made, made.secret, progress)
    log_recovery.recover_logs(client, made, follower, told == "done")
    delete_secret(client, made, made.pull_secret, progress)
    outcome = explain_end(folder, check_attendance(made.job, follower, outcome), "kubernetes")
    ended = record_end(follower, outcome, record, guard.prices(follower.nodes.values()), follower.ended_at())
    result = add_drill(build_result(ended, folder, changed), follower, ended)
    return guard.delete_due(add_problem(result, problem), outcome.outcome)


def _derive(asked: ClusterRun, made: KubePlan) -> Result:
    prices = [None] * made.job.nodes
    derived = advice.derive_advice(made.job, bandwidth_gb_s=asked.network.bandwidth_gb_s, prices_usd_per_hour=prices)
    return {**derived, "connection": "kubernetes", "lane": "network", "run_id": made.run_id}


def _open_record(asked: ClusterRun, made: KubePlan, follows: bool) -> RunRecord:
    source, before = asked.source, asked.before
    values: Dict = {
        "backend": "kubernetes",
        "engine": made.job.engine,
        "launcher": made.job.launcher,
        "code_sha256": source.code_sha256,
        "versions": {"commit": source.commit} if source.commit else {},
        "derived": _derive(asked, made),
        "fabric": asked.network.reference,
        "job": to_yaml_names(made.job),
        "generation": made.first_attempt,
        "hosts": (),
    }
    if before is None:
        return run_record.new_record(made.run_id, values.pop("job"), time.time(), **values)
    again = run_record.reopen_record(before, "running" if follows else "starting")
    if not follows:
        # Its time begins anew, and so may its image.
        again = dataclasses.replace(again, admitted_at=None, image_digest=None)
    return dataclasses.replace(again, **values)
