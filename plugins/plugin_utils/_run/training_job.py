# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The runner of ``training_job``: read -> plan -> prepare -> start -> follow -> record, on plain hosts.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
import shutil
import tempfile
import time
import typing as t

from ...module_utils._model import advice, checks, drill, fabric_gate
from ...module_utils._model.errors import MusterError, RefusedError
from ...module_utils._model.job import Job, to_yaml_names
from ...module_utils._node import paths
from .._hosts import gang, keys
from .._hosts.remote import Remote, each, first_error
from .._launch import mpi
from . import job_loading, planning, record, secrets
from .follow import Follower, Outcome, Progress, describe
from .state_home import StateHome, read_record

Dict = dict[str, t.Any]


@dataclasses.dataclass(frozen=True)
class Request:
    """What the face hands over: options, the play's hosts with their variables, and how to reach them."""

    options: Dict
    hosts: t.Sequence[str]
    hostvars: t.Mapping[str, t.Any]
    base: pathlib.Path
    check: bool
    connect: t.Callable[[t.Sequence[str]], list[Remote]]
    progress: Progress


@dataclasses.dataclass(frozen=True)
class Plan:
    """Everything decided before anything is written."""

    job: Job
    run_id: str
    hosts: list[planning.Host]
    source: planning.Source
    remotes: list[Remote]
    infos: dict[str, Dict]
    checks: list[checks.Check]
    derived: Dict
    gate: fabric_gate.Gate


def run(request: Request) -> Dict:
    """Bring the job to its asked state and return the module's result."""
    home = StateHome(request.options["state_home"], request.options["cluster"])
    try:
        if request.options["state"] == "cancelled":
            return cancel(request, home)
        return _run(request, home)
    except OSError as exc:
        problem = f"the state home {home.root} cannot be used: {exc.strerror or exc}"
        raise RefusedError(problem, "Set muster_state.path to a folder on a disk with room") from exc


def _run(request: Request, home: StateHome) -> Dict:
    job = job_loading.load(request.options, request.base, home)
    found = planning.hosts(request.hosts, request.hostvars, job)
    given = request.options.get("run_id")
    with tempfile.TemporaryDirectory(prefix="muster-") as nowhere:
        cache = pathlib.Path(nowhere) if request.check else home.folder / "git"
        source = planning.source(job, request.base, cache)
        run_id = str(given) if given else planning.run_id(job, source)
        folder = home.run_folder(run_id)
        before = read_record(folder)
        if before and before["state"] == "ended" and before["outcome"] == "succeeded":
            request.progress.say(f"run {run_id} has succeeded already; name another run_id to run it again")
            return _result(before, folder, changed=False)
        resolved = secrets.resolve(job)
        drilling = _drill(request, job, found)
        if request.check:
            plan = _plan(request, home, job, found, source, run_id)
            changed = not _running(plan)
            return {"changed": changed, "run_id": run_id, "derived": plan.derived, "checks": checks.result(plan.checks)}
        with home.lock(run_id):
            try:
                plan = _plan(request, home, job, found, source, run_id)
                return _present(request, home, plan, before, resolved, drilling)
            finally:
                _forget_unborn(folder)


def _forget_unborn(folder: pathlib.Path) -> None:
    """Remove the folder of a run that never got a record."""
    if not (folder / "run.json").exists():
        shutil.rmtree(folder, ignore_errors=True)


def cancel(request: Request, home: StateHome) -> Dict:
    """Stop a run on all its nodes; cancelling what does not run changes nothing."""
    run_id = str(request.options["run_id"])
    folder = home.run_folder(run_id)
    before = read_record(folder)
    if before is None:
        raise RefusedError(f"there is no run {run_id} in {home.folder}", "List the runs with the status playbook")
    names = [host for host in _hosts_of(before) if host in request.hostvars]
    remotes = request.connect(names)
    for remote in remotes:
        remote.owner = None if request.options.get("take_over") else home.owner(create=False)["owner"]
    if request.check:
        return {"changed": before["state"] != "ended", "run_id": run_id}
    grace = int(before["job"]["checkpoints"]["grace_s"])
    answers, errors = gang.stop(remotes, run_id, grace + 20)
    stopped = any(answer["stopped"] for answer in answers.values())
    if before["state"] != "ended":
        now = time.time()
        before = record.end(before, now, outcome="cancelled", cause="cancelled", detail="cancelled", exit_code=143)
        paths.write_json(folder / "run.json", before)
        paths.append_json(folder / "events.jsonl", {"at": now, "kind": "cancelled"})
        stopped = True
    if errors:
        raise first_error(errors)
    return _result(before, folder, changed=stopped)


def _drill(request: Request, job: Job, found: t.Sequence[planning.Host]) -> drill.Drill | None:
    value = request.options.get("drill")
    return drill.parse(value, job.world_size, [host.name for host in found], job.nproc) if value else None


def _plan(
    request: Request, home: StateHome, job: Job, found: list[planning.Host], source: planning.Source, run_id: str
) -> Plan:
    """Ask all hosts at once and apply every rule; raises before anything was written."""
    remotes = request.connect([host.name for host in found])
    reserve = None if request.check else _claim(request, home, job)
    for remote in remotes:
        remote.owner = reserve["owner"] if reserve else None
    by_name = {host.name: (index, host) for index, host in enumerate(found)}

    def ask(remote: Remote) -> tuple[Dict, float]:
        index, host = by_name[remote.name]
        began = time.time()
        info = remote.call("info", **planning.info_request(job, index, host, run_id, source, reserve))
        # The node read its clock about half-way between our two readings.
        return info, info["time"] - (began + time.time()) / 2

    answers, errors = each(remotes, ask)
    infos = {name: answer[0] for name, answer in answers.items()}
    try:
        if errors:
            raise first_error(errors)
        reserved = infos[found[0].name].get("reserved")
        if reserved:
            raise RefusedError(str(reserved), "Follow or cancel it there, or take it over with muster_take_over: true")
        skews = {host.name: answers[host.name][1] for host in found}
        owner = infos_owner(home, request.options.get("take_over"), infos)
        results = checks.preflight(job, infos, skews, run_id, owner)
        checks.refuse(results)
        return _judged(home, job, found, source, remotes, run_id, infos, results)
    except MusterError:
        _unreserve(remotes[0], infos.get(found[0].name), run_id)
        raise


def _unreserve(first: Remote, info: Dict | None, run_id: str) -> None:
    """Give back the first host's claim where it was taken just now; a run that lives keeps its claim."""
    if info and "reserved" in info and not info["reserved"] and not info["claim"]:
        gang.give_up([first], run_id, fresh=not info["units"])


def _judged(
    home: StateHome,
    job: Job,
    found: list[planning.Host],
    source: planning.Source,
    remotes: list[Remote],
    run_id: str,
    infos: dict[str, Dict],
    results: list[checks.Check],
) -> Plan:
    """Return the plan when the network of the nodes allows the job."""
    verdicts = (paths.read_json(home.folder / "fabric.json") or {}).get("islands", [])
    gate = fabric_gate.judge(job, [host.name for host in found], verdicts)
    derived = advice.derive(
        job, bandwidth_gb_s=gate.bandwidth_gb_s, prices_usd_per_hour=[host.price_usd_per_hour for host in found]
    )
    kinds = {host.connection for host in found}
    derived.update({"connection": "/".join(sorted(kinds)), "lane": planning.lane(found), "run_id": run_id})
    return Plan(job, run_id, found, source, remotes, infos, results, derived, gate)


def infos_owner(home: StateHome, take_over: t.Any, infos: t.Mapping[str, Dict]) -> str:
    """Return the owner to judge claims by: ours, or with ``take_over`` whoever holds the run."""
    if take_over:
        held = [str((info.get("claim") or {}).get("owner", "")) for info in infos.values()]
        return next((owner for owner in held if owner), "")
    return home.owner(create=False)["owner"]


def _running(plan: Plan) -> bool:
    return any(info["units"].get("agent", {}).get("alive") for info in plan.infos.values())


def _ended_unseen(plan: Plan, before: Dict | None) -> bool:
    """Return whether the run ended on all nodes while nobody followed it: its end is then only to be recorded."""
    if before is None or before["state"] == "ended":
        return False
    ends = [info["units"].get("agent", {}).get("exit") for info in plan.infos.values()]
    return all(end and end["generation"] == before["generation"] for end in ends)


def _present(
    request: Request,
    home: StateHome,
    plan: Plan,
    before: Dict | None,
    resolved: tuple[dict[str, str], dict[str, bytes]],
    drilling: drill.Drill | None,
) -> Dict:
    folder = paths.private_dir(home.run_folder(plan.run_id))
    unseen = _ended_unseen(plan, before)
    running = _running(plan) or unseen
    if (
        running
        and not unseen
        and plan.job.launcher == "mpi"
        and not all(_alive(plan, host.name) for host in plan.hosts)
    ):
        # Its parts share keys that nobody keeps: one part cannot be joined to the others later.
        gang.stop(plan.remotes, plan.run_id, plan.job.checkpoints.grace_s + 20)
        running = False
    attempt = _generation(plan, before, running)
    current = _open_record(plan, before, attempt, running)
    members, claim = _members(home, plan, attempt, resolved), _claim(request, home, plan.job)
    missing = [m for m in members if not unseen and not (running and _alive(plan, m.remote.name))]
    started: list[str] = []
    _announce(request.progress, plan, running)
    paths.write_json(folder / "run.json", current)
    paths.write_json(folder / "claim.json", claim)
    if plan.gate.verdict:
        paths.write_json(folder / "fabric.json", {"schema": record.SCHEMA, "islands": [plan.gate.verdict]})
    if missing:
        if not running:
            paths.append_json(folder / "events.jsonl", {"at": time.time(), "kind": "submitted", "attempt": attempt})
        try:
            ready = members if not running else [_alone(member, members) for member in missing]
            gang.prepare(ready, plan.source.placed, claim, plan.run_id, fresh=before is None)
            started = gang.start(missing, plan.run_id, fresh=before is None)
        except MusterError as exc:
            _failed_start(folder, before, current, exc, running)
            raise
        paths.append_json(folder / "events.jsonl", {"at": time.time(), "kind": "started", "attempt": attempt})
    if not request.options["wait"]:
        return _result(current, folder, changed=bool(started))
    return _follow(request, plan, members, folder, current, drilling, changed=bool(started))


def _alone(member: gang.Member, members: t.Sequence[gang.Member]) -> gang.Member:
    """Return a member for joining a gang that runs: only a rendezvous store is still there to be met."""
    store = any(other.store for other in members)
    return dataclasses.replace(member, meet=None, reach=member.reach if store else None)


def _failed_start(folder: pathlib.Path, before: Dict | None, current: Dict, exc: MusterError, running: bool) -> None:
    """Put the record back: a run that never started leaves no trace, one that had run stays ended."""
    if running:
        return
    if before is not None:
        paths.write_json(folder / "run.json", before)
        return
    for name in ("run.json", "claim.json", "events.jsonl", "offsets.json", "fabric.json", "lock"):
        (folder / name).unlink(missing_ok=True)
    try:
        folder.rmdir()
    except OSError:
        return


def _generation(plan: Plan, before: Dict | None, running: bool) -> int:
    """Return the number of the first attempt of this start; a gang that runs keeps the one it has."""
    if running:
        seen = [info["units"]["agent"]["generation"] for info in plan.infos.values() if info["units"].get("agent")]
        return int(max(number for number in seen if number is not None))
    done = [int(item["n"]) for item in (before or {}).get("attempts", [])]
    return max([int((before or {}).get("generation", 0)), *done]) + 1


def _open_record(plan: Plan, before: Dict | None, attempt: int, running: bool) -> Dict:
    values = {
        "launcher": plan.job.launcher,
        "code_sha256": plan.source.code_sha256,
        "versions": _versions(plan),
        "derived": plan.derived,
        "generation": attempt,
        "fabric": _fabric(plan),
        "hosts": [host.name for host in plan.hosts],
    }
    if before is None:
        return record.new(plan.run_id, to_yaml_names(plan.job), time.time(), **values)
    again = {"state": "running" if running else "starting", "ended_at": None, "outcome": None, "exit_code": None}
    return {**before, **values, **again, "cause": None, "detail": None}


def _fabric(plan: Plan) -> Dict | None:
    verdict = plan.gate.verdict
    return {key: verdict[key] for key in ("island", "outcome", "lane")} if verdict else None


def _versions(plan: Plan) -> Dict:
    first = plan.infos[plan.hosts[0].name]
    found = {"python": first["training"]["version"], "kernel": first["kernel"], **first["training"]["packages"]}
    return {**found, "commit": plan.source.commit} if plan.source.commit else found


def _members(
    home: StateHome, plan: Plan, attempt: int, resolved: tuple[dict[str, str], dict[str, bytes]]
) -> list[gang.Member]:
    nodes = planning.slots(plan.hosts, plan.infos, plan.run_id)
    launched, context = planning.launch(plan.job, nodes, plan.run_id, attempt)
    env, files = resolved
    if launched.keypair:
        pair = keys.make(home.run_folder(plan.run_id))
        known = mpi.known_hosts(nodes, context, pair.host_public)
        files = {
            **files,
            mpi.KEY_FILE: pair.private,
            mpi.HOST_KEY_FILE: pair.host_private,
            mpi.AUTHORIZED_FILE: pair.public,
            mpi.KNOWN_HOSTS_FILE: known.encode(),
        }
    made = planning.members(plan.job, plan.remotes, nodes, launched, context, plan.infos, (env, files))
    return made


def _claim(request: Request, home: StateHome, job: Job) -> Dict:
    """Return what a node notes about who holds the run."""
    take_over = bool(request.options.get("take_over"))
    return {**home.owner(create=True), "gpus": job.gpus_per_node, "take_over": take_over}


def _alive(plan: Plan, node: str) -> bool:
    return bool(plan.infos[node]["units"].get("agent", {}).get("alive"))


def _announce(progress: Progress, plan: Plan, running: bool) -> None:
    derived = plan.derived
    parts = [f"run {plan.run_id}: {plan.job.nodes} nodes × {plan.job.nproc} = world size {derived['world_size']}"]
    if derived["effective_batch"]:
        parts.append(f"effective batch {derived['effective_batch']}")
    if derived["learning_rate_advice"]:
        parts.append(f"linear scaling suggests learning rate {derived['learning_rate_advice']:g}")
    if derived["price_usd_per_hour"]:
        parts.append(f"${derived['price_usd_per_hour']:.2f} an hour")
    if derived["predicted_allreduce_s"]:
        parts.append(f"{derived['predicted_allreduce_s']:.3g} s per all-reduce of all gradients")
    progress.say(" · ".join(parts) + (" · runs already, following it" if running else ""))
    for warning in plan.gate.warnings:
        progress.say(f"warning: {warning}")


def _follow(
    request: Request,
    plan: Plan,
    members: t.Sequence[gang.Member],
    folder: pathlib.Path,
    current: Dict,
    drilling: drill.Drill | None,
    changed: bool,
) -> Dict:
    by_name = {member.remote.name: member for member in members}
    claim = json.loads((folder / "claim.json").read_text())
    prices = {host.name: host.price_usd_per_hour for host in plan.hosts}
    state = {"record": current}

    def restart(remote: Remote) -> None:
        member = dataclasses.replace(_alone(by_name[remote.name], members), missing={})
        gang.prepare([member], plan.source.placed, claim, plan.run_id)
        gang.start([by_name[remote.name]], plan.run_id)

    def save(follower: Follower) -> None:
        state["record"] = record.update(state["record"], follower.story, prices, time.time())
        paths.write_json(folder / "run.json", state["record"])

    follower = Follower(plan.job, plan.run_id, folder, plan.remotes, request.progress, restart, save, drilling)
    try:
        outcome = follower.run()
    except KeyboardInterrupt:
        request.progress.say(f"run {plan.run_id} goes on without us: the same command follows it, cancel stops it")
        raise
    gang.stop(plan.remotes, plan.run_id, plan.job.checkpoints.grace_s + 20)
    outcome = _attended(plan.job, follower, outcome)
    follower.event("ended", detail=outcome.outcome)
    ended = record.end(
        state["record"],
        time.time(),
        outcome=outcome.outcome,
        exit_code=outcome.exit_code,
        cause=outcome.cause,
        detail=outcome.detail,
    )
    ended = record.update(ended, follower.story, prices, time.time())
    proof = _drill_proof(plan.job, follower)
    if proof:
        ended["drill"] = proof
    paths.write_json(folder / "run.json", ended)
    request.progress.say(
        f"run {plan.run_id} {outcome.outcome}: {outcome.detail} · {describe({**follower.state(), 'nodes': 0})}"
    )
    return _result(ended, folder, changed)


def _attended(job: Job, follower: Follower, outcome: Outcome) -> Outcome:
    """Fail a run that saw fewer ranks than asked, whatever its exit code."""
    last = follower.story.attempts[-1] if follower.story.attempts else None
    seen = len(last.ranks) if last else 0
    believed = last.world_size if last else None
    if outcome.outcome != "succeeded" or (seen == job.world_size and believed in (None, job.world_size)):
        return outcome
    detail = f"{seen} ranks with world size {believed} were seen, {job.world_size} were asked"
    return Outcome("failed", 1, "attendance", detail)


def _drill_proof(job: Job, follower: Follower) -> Dict | None:
    if follower.drilled_at is None:
        return None
    return drill.verdict(follower.story, follower.drilled_at, job.checkpoints.interval_steps, job.world_size)


def _hosts_of(before: Dict) -> list[str]:
    names = [node["id"] for item in before["attempts"] for node in item["nodes"]]
    return list(dict.fromkeys([*before.get("hosts", []), *names]))


def _result(value: Dict, folder: pathlib.Path, changed: bool) -> Dict:
    """Return the module's result: the record, where it is, and failure when the run failed."""
    result: Dict = {"changed": changed, "run_id": value["run_id"], "run": value, "folder": str(folder)}
    if value["outcome"] in ("failed", "lost"):
        result.update(failed=True, msg=f"run {value['run_id']} {value['outcome']}: {value['detail']}")
    return result
