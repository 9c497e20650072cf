# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The runner of ``training_job``: read -> plan -> prepare -> start -> follow -> record, on plain hosts.

Jobs for Kubernetes are handed on to ``cluster_job``, which is imported only then: it takes a tenth of a second.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import pathlib
import tempfile
import time
import typing as t

from ....module_utils._model import advice, checks, fabric_gate
from ....module_utils._model.errors import InputError, MusterError, RefusedError
from ....module_utils._model.job import Job
from ....module_utils._node import files
from ..._hosts import agent_package, gang
from ..._hosts.node_client import NodeClient, most_telling_error, on_each_node
from ..shared import run_record
from ..shared.state_dir import StateHome, forget_unborn, read_record
from . import lease_guard, load, secrets
from .hosts import plan as hosts_plan
from .hosts.start import present
from .hosts.state import AGENTS, Dict, Plan, Request, claim, result, running

if t.TYPE_CHECKING:
    from ....module_utils._model import drill

__all__ = ["Request", "run"]


def run(request: Request) -> Dict:
    """Bring the job to its asked state and return the module's result."""
    home = StateHome(request.options["state_home"], request.options["cluster"])
    try:
        if request.options["state"] == "cancelled":
            if not request.options.get("run_id"):
                raise InputError("run_id", "is required to cancel", "Name the run (muster_run_id); status lists them")
            return cancel(request, home)
        return _run(request, home)
    except OSError as exc:
        problem = f"the state home {home.root} cannot be used: {exc.strerror or exc}"
        raise RefusedError(problem, "Set muster_state.path to a folder on a disk with room") from exc


def _run(request: Request, home: StateHome) -> Dict:
    job = load.load(request.options, request.base, home)
    if job.on_kubernetes:
        from .kubernetes import run as kubernetes_run

        return kubernetes_run.run(request, home, job)
    found = hosts_plan.hosts(request.hosts, request.hostvars, job)
    given = request.options.get("run_id")
    with tempfile.TemporaryDirectory(prefix="muster-") as nowhere:
        cache = pathlib.Path(nowhere) if request.check else home.folder / "git"
        source = hosts_plan.source(job, request.base, cache)
        run_id = str(given) if given else hosts_plan.run_id(job, source)
        folder = home.run_folder(run_id)
        before = read_record(folder)
        if before and before["state"] == "ended" and before["outcome"] == "succeeded":
            request.progress.say(f"run {run_id} has succeeded already; name another run_id to run it again")
            return lease_guard.ended(request, home, run_id, result(before, folder, changed=False), "succeeded")
        resolved = secrets.resolve(job)
        drilling = _drill(request, job, found)
        if request.check:
            plan = _plan(request, home, job, found, source, run_id)
            changed = not running(plan)
            return {
                "changed": changed,
                "run_id": run_id,
                "derived": plan.derived,
                "checks": checks.build_result(plan.checks),
            }
        with home.lock(run_id):
            try:
                plan = _plan(request, home, job, found, source, run_id)
                return present(request, home, plan, before, resolved, drilling)
            finally:
                forget_unborn(folder)


def cancel(request: Request, home: StateHome) -> Dict:
    """Stop a run on all its nodes; cancelling what does not run changes nothing."""
    run_id = str(request.options["run_id"])
    folder = home.run_folder(run_id)
    before = read_record(folder)
    if before is None:
        raise RefusedError(f"there is no run {run_id} in {home.folder}", "List the runs with the status playbook")
    if before.get("backend") == "kubernetes":
        from .kubernetes import run as kubernetes_run

        return kubernetes_run.cancel(request, home, before)
    names = [host for host in _hosts_of(before) if host in request.hostvars]
    remotes = request.connect(names)
    for remote in remotes:
        remote.owner = None if request.options.get("take_over") else home.owner(create=False)["owner"]
    if request.check:
        return {"changed": before["state"] != "ended", "run_id": run_id}
    grace = int(before["job"]["checkpoints"]["grace_s"])
    answers, errors = gang.stop_gang(remotes, run_id, grace + 20)
    stopped = any(answer["stopped"] for answer in answers.values())
    if before["state"] != "ended":
        now = time.time()
        before = run_record.end(before, now, outcome="cancelled", cause="cancelled", detail="cancelled", exit_code=143)
        files.write_json(folder / "run.json", before)
        files.append_json(folder / "events.jsonl", {"at": now, "kind": "cancelled"})
        stopped = True
    if errors:
        raise most_telling_error(errors)
    return lease_guard.ended(request, home, run_id, result(before, folder, changed=stopped), str(before["outcome"]))


def _drill(request: Request, job: Job, found: t.Sequence[hosts_plan.Host]) -> drill.Drill | None:
    value = request.options.get("drill")
    if not value:
        return None
    from ....module_utils._model import drill

    return drill.parse_drill(value, job.world_size, [host.name for host in found], job.nproc)


def _plan(
    request: Request, home: StateHome, job: Job, found: list[hosts_plan.Host], source: hosts_plan.Source, run_id: str
) -> Plan:
    """Ask all hosts at once and apply every rule; raises before anything was written."""
    remotes = request.connect([host.name for host in found])
    reserve = None if request.check else claim(request, home, job)
    known = files.read_json(home.folder / AGENTS) or {}
    for remote in remotes:
        remote.owner = reserve["owner"] if reserve else None
        # An agent that was there the last time answers sooner than one that is sent along.
        remote.program = next(
            (at for at in [known.get(remote.name)] if at and agent_package.is_current_version(at)), None
        )
    by_name = {host.name: (index, host) for index, host in enumerate(found)}

    def ask(remote: NodeClient) -> tuple[Dict, float]:
        index, host = by_name[remote.name]
        began = time.time()
        info = remote.call("info", **hosts_plan.info_request(job, index, host, run_id, source, reserve))
        # The node read its clock about half-way between our two readings.
        return info, info["time"] - (began + time.time()) / 2

    answers, errors = on_each_node(remotes, ask)
    infos = {host.name: answers[host.name][0] for host in found if host.name in answers}
    try:
        if errors:
            raise most_telling_error(errors)
        reserved = infos[found[0].name].get("reserved")
        if reserved:
            raise RefusedError(str(reserved), "Follow or cancel it there, or take it over with muster_take_over: true")
        skews = {host.name: answers[host.name][1] for host in found}
        owner = infos_owner(home, request.options.get("take_over"), infos)
        results = checks.check_gang(job, infos, skews, run_id, owner)
        checks.raise_first_failure(results)
        return _judged(home, job, found, source, remotes, run_id, infos, results)
    except MusterError:
        _unreserve(remotes[0], infos.get(found[0].name), run_id)
        raise


def _unreserve(first: NodeClient, info: Dict | None, run_id: str) -> None:
    """Give back the first host's claim where it was taken just now; a run that lives keeps its claim."""
    if info and "reserved" in info and not info["reserved"] and not info["claim"]:
        gang.undo_start([first], run_id, fresh=not info["units"])


def _judged(
    home: StateHome,
    job: Job,
    found: list[hosts_plan.Host],
    source: hosts_plan.Source,
    remotes: list[NodeClient],
    run_id: str,
    infos: dict[str, Dict],
    results: list[checks.Check],
) -> Plan:
    """Return the plan when the network of the nodes allows the job."""
    document = files.read_json(home.folder / "fabric.json")
    # What is no document at all is for the gate to name.
    verdicts = document.get("islands", []) if isinstance(document, dict) else (document or [])
    gate = fabric_gate.judge_fabric(job, [host.name for host in found], verdicts)
    derived = advice.derive_advice(
        job, bandwidth_gb_s=gate.bandwidth_gb_s, prices_usd_per_hour=[host.price_usd_per_hour for host in found]
    )
    kinds = {host.connection for host in found}
    derived.update({"connection": "/".join(sorted(kinds)), "lane": hosts_plan.lane(found), "run_id": run_id})
    return Plan(job, run_id, found, source, remotes, infos, results, derived, gate)


def infos_owner(home: StateHome, take_over: t.Any, infos: t.Mapping[str, Dict]) -> str:
    """Return the owner to judge claims by: ours, or with ``take_over`` whoever holds the run."""
    if take_over:
        held = [str((info.get("claim") or {}).get("owner", "")) for info in infos.values()]
        return next((owner for owner in held if owner), "")
    return home.owner(create=False)["owner"]


def _hosts_of(before: Dict) -> list[str]:
    names = [node["id"] for item in before["attempts"] for node in item["nodes"]]
    return list(dict.fromkeys([*before.get("hosts", []), *names]))
