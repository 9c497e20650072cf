# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The runner of ``training_job`` on Kubernetes: look -> judge -> probe -> submit -> follow -> record.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import dataclasses
import pathlib
import tempfile
import time
import typing as t

from .....module_utils._model import advice, drill, job_backends
from .....module_utils._model.errors import InputError, MusterError
from .....module_utils._model.job import Job, to_yaml_names
from .....module_utils._model.timestamps import parse_time
from .....module_utils._node import files
from ...._kube.api.client import Client
from ...._kube.jobs.spec import ATTEMPT_LABEL, KubePlan, Object
from ...._kube.objects import status
from ...shared import cluster_identity, kube_connection, run_record
from ...shared.state_dir import StateHome, forget_unborn, read_record
from .. import secrets
from ..follower import Follower
from ..hosts import plan as hosts_plan
from ..hosts.state import Dict, Request, result
from ..outcome import attended, explained, finished
from . import leader_lease, lease_guard, log_recovery, network_preflight, submit
from . import plan as kubernetes_plan
from .delete import GONE_S, await_pods, forget_secret, remove
from .follower import ClusterFollower
from .leader_lease import Claim
from .lease_guard import ClusterCustody
from .timestamps import placed_at
from .watches import Sources


@dataclasses.dataclass(frozen=True)
class Asked:
    """What is to run and what the cluster said of itself before anything was decided. ``before``: the run's record."""

    request: Request
    home: StateHome
    job: Job
    source: hosts_plan.Source
    run_id: str
    client: Client
    facts: kubernetes_plan.Facts
    before: Dict | None
    _plans: dict[int, KubePlan] = dataclasses.field(default_factory=dict, repr=False)

    @property
    def folder(self) -> pathlib.Path:
        """The run's folder."""
        return self.home.run_folder(self.run_id)

    @property
    def next_attempt(self) -> int:
        """The number of the first attempt of a new start."""
        before = self.before or {}
        done = [int(item["n"]) for item in before.get("attempts", [])]
        return max([int(before.get("generation", 0)), *done]) + 1

    def there(self) -> Object | None:
        """Return the object that runs it, None when there is none.

        Where its record says that it lives it is looked for as it was made: the job may name another engine by now.
        """
        made, before = self.plan(self.next_attempt), self.before or {}
        reference = before.get("backend_ref") or {}
        if before.get("state") != "ended" and reference.get("kind"):
            found = submit.found(self.client, reference)
            if found is not None:
                return found
        return self.client.get(kubernetes_plan.objects(made)[-1], made.name, made.namespace)

    def plan(self, attempt: int) -> KubePlan:
        """Return the plan of a start whose first attempt has this number."""
        if attempt not in self._plans:
            namespace = self.job.placement.namespace or self.client.namespace
            # Code is packed for it.
            made = kubernetes_plan.plan(
                self.job, self.source, self.run_id, self.home.folder.name, namespace, attempt, self.facts
            )
            self._plans[attempt] = dataclasses.replace(made, followed=bool(self.request.options["wait"]))
        return self._plans[attempt]


def run(request: Request, home: StateHome, job: Job) -> Dict:
    """Bring the run to the asked state and return the module's result."""
    lease_guard.insist(job, bool(request.options["wait"]))
    with tempfile.TemporaryDirectory(prefix="muster-") as nowhere:
        cache = pathlib.Path(nowhere) if request.check else home.folder / "git"
        source = hosts_plan.source(job, request.base, cache)
        run_id = str(request.options.get("run_id") or hosts_plan.run_id(job, source))
        folder = home.run_folder(run_id)
        before = read_record(folder)
        if before and before["state"] == "ended" and before["outcome"] == "succeeded":
            request.progress.say(f"run {run_id} has succeeded already; name another run_id to run it again")
            done = result(before, folder, changed=False)
            return lease_guard.ended(request, home, before, lambda: _client(request, job)[0], done)
        values = secrets.resolve(job)
        client, namespace = _client(request, job)
        if not request.options.get("cluster_id"):
            # Who names the cluster by its id knows better than what was written down.
            cluster_identity.insist(client, before)
            if before is None or before["state"] == "ended":
                cluster_identity.insist_home(client, home)
        kubernetes_plan.insist_engine(client, job)
        facts = kubernetes_plan.look(client, job, namespace)
        drilling = _drill(request, job, facts)
        asked = Asked(request, home, job, source, run_id, client, facts, before)
        # What runs already has its nodes: one of them may be lost, and the run is followed all the same.
        live = asked.there()
        if not _goes_on(asked, live):
            submit.insist_seen(run_id, before, live, bool(request.options.get("recreate")))
            kubernetes_plan.judge(job, facts, namespace)
        for warning in (*facts.warnings, *job_backends.backend_warnings(job)):
            request.progress.say(f"warning: {warning}")
        if request.check:
            return _rehearse(asked)
        with home.lock(run_id):
            try:
                take_over = bool(request.options.get("take_over"))
                with leader_lease.held(client, asked.plan(1), home, request.progress, take_over) as claim:
                    return _present(asked, values, drilling, claim)
            finally:
                forget_unborn(folder)


def cancel(request: Request, home: StateHome, before: Dict) -> Dict:
    """Remove what runs the job and wait until its pods are gone, so that nothing of it writes any more."""
    run_id, ref = str(before["run_id"]), before.get("backend_ref") or {}
    folder = home.run_folder(run_id)
    if request.check:
        return {"changed": before["state"] != "ended", "run_id": run_id}
    client, _unused = _open(request, ref.get("context"))
    if not request.options.get("cluster_id"):
        cluster_identity.insist(client, before)
    grace = int(before["job"]["checkpoints"]["grace_s"])
    gone, problem = bool(ref), None
    try:
        gone = gone and remove(client, ref, run_id, grace + GONE_S, request.progress)
        if ref:
            leader_lease.forget_stale(client, str(ref["name"]), str(ref["namespace"]))
    except MusterError as error:
        # Rented machines of a run that is to end must not wait for what stands in the way of its pods.
        problem = error
    if before["state"] != "ended":
        now = time.time()
        before = run_record.end(before, now, outcome="cancelled", cause="cancelled", detail="cancelled", exit_code=143)
        files.write_json(folder / "run.json", before)
        files.append_json(folder / "events.jsonl", {"at": now, "kind": "cancelled"})
        gone = True
    done = _told(result(before, folder, changed=gone), problem)
    return lease_guard.ended(request, home, before, lambda: client, done)


def _client(request: Request, job: Job) -> tuple[Client, str]:
    client, own = _open(request, job.placement.cluster)
    return client, job.placement.namespace or own


def _open(request: Request, context: str | None) -> tuple[Client, str]:
    client = kube_connection.open_client(request.options, request.base, request.progress.say, context=context)
    return client, client.namespace


def _drill(request: Request, job: Job, facts: kubernetes_plan.Facts) -> drill.Drill | None:
    value = request.options.get("drill")
    if not value:
        return None
    named = str(value.get("node") or "") if isinstance(value, dict) else ""
    # Where each rank will be only the scheduler knows; a node that is named must be one of the cluster's.
    known = [str(item["metadata"]["name"]) for item in facts.nodes or []] or [named]
    found = drill.parse_drill(value, job.world_size, known if named else [""] * job.nodes, job.nproc)
    if found.target == "worker":
        raise InputError("drill.target", "a single rank cannot be killed on Kubernetes", "Use agent: the rank's pod")
    return found


def _rehearse(asked: Asked) -> Dict:
    """Let the server judge everything without making it."""
    made, live = asked.plan(asked.next_attempt), asked.there()
    follows = _goes_on(asked, live)
    if not follows:
        submit.rehearse(asked.client, made, live)
    checks = {"ok": True, "exit_code": 0, "checks": [], "failures": []}
    return {"changed": not follows, "run_id": asked.run_id, "derived": _derived(made), "checks": checks}


def _present(
    asked: Asked, values: tuple[dict[str, str], dict[str, bytes]], drilling: drill.Drill | None, claim: Claim
) -> Dict:
    request, client, before, folder = asked.request, asked.client, asked.before, asked.folder
    made, live = asked.plan(asked.next_attempt), asked.there()
    follows = _goes_on(asked, live)
    if live is not None and follows:
        submit.own(client, made, live, known=bool((before or {}).get("backend_ref", {}).get("uid")))
        made = asked.plan(int((before or {}).get("generation") or live["metadata"]["labels"][ATTEMPT_LABEL]))
    current = _open_record(asked, made, follows)
    _announce(request, made, follows)
    if follows:
        reference = _reference(t.cast(Object, live), made, request)
        known = (current.get("backend_ref") or {}).get("cluster_id")
    else:
        _make_room(asked, made, live)
        network_preflight.prove(client, made, asked.home, request.progress, asked.facts)
        made = dataclasses.replace(made, begun=int(time.time()))
        reference, known = _reference(kubernetes_plan.objects(made)[-1], made, request), None
    current["backend_ref"] = {**reference, "cluster_id": known or cluster_identity.read(client)}
    files.private_dir(folder)
    # Whoever is killed from here on leaves a run that can be found, followed and cancelled.
    files.write_json(folder / "run.json", current)
    if not follows:
        current["submitted_at"] = current["queued_at"] = run_record.iso(time.time())
        digest = hosts_plan.digest(asked.job, asked.source)
        try:
            live, companions = submit.submit(client, made, values, digest)
        except BaseException:
            _forget(folder, before)
            raise
        # From here on they are the job's own: whoever deletes it deletes them.
        submit.adopt(client, companions, live)
        current["backend_ref"]["uid"] = live["metadata"].get("uid")
        files.write_json(folder / "run.json", current)
        line = {"at": time.time(), "kind": "submitted", "attempt": _first_attempt(made)}
        files.append_json(folder / "events.jsonl", line)
    if not request.options["wait"]:
        return result(current, folder, changed=not follows)
    return _follow(asked, made, t.cast(Object, live), current, drilling, claim, changed=not follows)


def _make_room(asked: Asked, made: KubePlan, live: Object | None) -> None:
    """Remove the former start of the run and wait for its pods: two gangs would write the same checkpoints."""
    request = asked.request
    if live is not None and status.state(live).phase == "waiting":
        # What runs well is not stopped for what could not take its place.
        submit.rehearse(asked.client, made, live)
        request.progress.say(f"run {asked.run_id} runs with another job: it is stopped, and this one starts")
    within_s = asked.job.checkpoints.grace_s + GONE_S
    if live is not None:
        remove(asked.client, _reference(live, made, request), asked.run_id, within_s, request.progress)
    elif asked.before is not None:
        # Its object may be gone before its pods are.
        await_pods(asked.client, made.namespace, asked.run_id, within_s, request.progress)


def _goes_on(asked: Asked, live: Object | None) -> bool:
    """Return whether the run is there to be followed, and not to be started anew.

    :raises RefusedError: when it runs another job and that one is not to be recreated.
    """
    # Without a record another controller started it: its end is read, not repeated.
    ended_unseen = live is not None and (asked.before is None or asked.before["state"] != "ended")
    if live is None or not (ended_unseen or status.state(live).phase == "waiting"):
        return False
    problem = submit.other_job(live, asked.run_id, asked.before, asked.job, asked.source)
    if problem is None:
        return True
    if not asked.request.options.get("recreate") or not submit.is_run(live, asked.run_id):
        raise problem
    return False


def _forget(folder: pathlib.Path, before: Dict | None) -> None:
    """Put the record back as it was before a submit of which nothing is left."""
    if before is None:
        (folder / "run.json").unlink(missing_ok=True)
    else:
        files.write_json(folder / "run.json", before)


def _first_attempt(made: KubePlan) -> int:
    return next(iter(made.pods.values())).attempt


def _follow(
    asked: Asked,
    made: KubePlan,
    live: Object,
    current: Dict,
    drilling: drill.Drill | None,
    claim: Claim,
    changed: bool,
) -> Dict:
    request, client, folder = asked.request, asked.client, asked.folder
    state = {"record": current}
    custody = ClusterCustody(request, asked.home, made.job, made.run_id, client)

    def save(follower: Follower) -> None:
        found = t.cast(ClusterFollower, follower)
        custody.placed(set(found.nodes.values()), current["backend_ref"])
        prices = custody.prices(found.nodes.values())
        value = run_record.update(state["record"], found.story, prices, time.time())
        if found.admitted_at and not value["admitted_at"]:
            value["admitted_at"] = run_record.iso(found.admitted_at)
        if found.waits.suspended and value["state"] != "ended":
            value["state"] = "queued"
        value["image_digest"] = next(iter(sorted(found.image_ids)), None)
        value["hosts"] = sorted(set(found.nodes.values()))
        state["record"] = value
        files.write_json(folder / "run.json", value)

    def over() -> str:
        claim.check()
        return custody.over()

    sources = Sources(client, made, live)
    follower = ClusterFollower(made.job, made.run_id, folder, sources, request.progress, save, drilling, over)
    if current["admitted_at"]:
        # Whoever followed it before has seen it start: its time limit does not begin anew.
        follower.admitted_at = placed_at(follower.story, parse_time(current["admitted_at"]))
    try:
        outcome = follower.run()
    except KeyboardInterrupt:
        request.progress.say(f"run {made.run_id} goes on without us: the same command follows it, cancel stops it")
        raise
    problem, told = None, status.state(follower.main).phase
    if told == "waiting":
        # It ended by a rule of ours: the engine would go on. Before anything is read: its pods may hold the place.
        within_s = made.job.checkpoints.grace_s + GONE_S
        try:
            remove(client, current["backend_ref"], made.run_id, within_s, request.progress)
        except MusterError as error:
            # The run has ended all the same, and its machines go back.
            problem = error
    else:
        forget_secret(client, made, request.progress)
    log_recovery.recover(client, made, follower, told == "done")
    outcome = explained(folder, attended(made.job, follower, outcome))
    at = follower.dated(status.end_time(follower.main)) if told in ("done", "failed") else None
    ended = finished(follower, outcome, state["record"], custody.prices(follower.nodes.values()), at)
    return custody.end(_told(result(ended, folder, changed), problem), outcome.outcome)


def _told(value: Dict, problem: MusterError | None) -> Dict:
    """Return a result that also tells a problem, where there was one."""
    if problem is None:
        return value
    known = [str(value["msg"])] if value.get("failed") and value.get("msg") else []
    return {**value, "failed": True, "msg": "; ".join([*known, str(problem)])}


def _reference(live: Object, made: KubePlan, request: Request) -> Dict:
    meta = live["metadata"]
    place = {"name": meta["name"], "namespace": meta.get("namespace") or made.namespace, "uid": meta.get("uid")}
    context = request.options.get("context") or made.job.placement.cluster
    return {"api_version": live["apiVersion"], "kind": live["kind"], **place, "context": context}


def _derived(made: KubePlan) -> Dict:
    derived = advice.derive_advice(made.job, bandwidth_gb_s=None, prices_usd_per_hour=[None] * made.job.nodes)
    derived.update({"connection": "kubernetes", "lane": "network", "run_id": made.run_id})
    return derived


def _open_record(asked: Asked, made: KubePlan, follows: bool) -> Dict:
    source, before = asked.source, asked.before
    values: Dict = {
        "backend": "kubernetes",
        "engine": made.job.engine,
        "launcher": made.job.launcher,
        "code_sha256": source.code_sha256,
        "versions": {"commit": source.commit} if source.commit else {},
        "derived": _derived(made),
        "job": to_yaml_names(made.job),
        "generation": _first_attempt(made),
        "hosts": [],
    }
    if before is None:
        return run_record.new(made.run_id, values.pop("job"), time.time(), **values)
    again = {"state": "running" if follows else "starting", "ended_at": None, "outcome": None, "exit_code": None}
    if not follows:
        # Its time begins anew, and so may its image.
        again |= {"admitted_at": None, "image_digest": None}
    return {**before, **values, **again, "cause": None, "detail": None}


def _announce(request: Request, made: KubePlan, follows: bool) -> None:
    job = made.job
    parts = [f"run {made.run_id}: {job.nodes} pods × {job.nproc} = world size {job.world_size}"]
    parts.append(f"{job.engine} in namespace {made.namespace}")
    if made.queue:
        parts.append(f"queue {made.queue.name}")
    request.progress.say(" · ".join(parts) + (" · runs already, following it" if follows else ""))
