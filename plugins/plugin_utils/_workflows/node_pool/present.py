# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Create a pool of nodes (``node_pool`` with state present): from options to a request, from its outcome to a
result.
"""

from __future__ import annotations

import dataclasses
import pathlib
import shlex
import typing as t

from ....module_utils._model import validators
from ....module_utils._model.errors import InputError, RefusedError
from ....module_utils._model.lease import Instance, parse_cluster_name, parse_pool_name
from ....module_utils._model.offer import Candidate, parse_candidates
from ....module_utils._model.timestamps import format_time
from ....module_utils._secrets.scrubber import remember, scrub, scrub_value
from ..._providers.base import MachineProvider
from ..._providers.registry import find_providers
from ..._providers.ssh_keys import public_key
from ..._provision.api import Prober, Scheduler, ThreadScheduler, read_identities
from ..._provision.bill.known_bill import describe_pool, format_price
from ..._provision.create import CreateOutcome, Terms, create_pool, read_pool
from ..._provision.create_plan import failure_reason, first_orders, next_candidate
from ..._provision.create_state import PoolRequest, PoolState
from ..._provision.ledger.ledger_session import LedgerSession, SendReplica
from ..._provision.ledger.ledger_store import find_unreadable, read_ledger
from ..._provision.probe_ssh import SshProber, ssh_options
from ..._provision.readiness import MachineRequirements
from ..._provision.run_exit_ssh import ReadRunEnd
from ..shared.open_ledger import open_ledger, open_machines
from ..shared.parent_process import watch_parent
from ..shared.state_dir import StateHome
from .absent_result import list_proved
from .accounts import Externals, ModuleResult, Options, open_providers

KNOWN_HOSTS = "known_hosts"
_USER_DATA_LIMIT = 1_000_000
# Shorter lines are such as "#cloud-config" or "packages:" and would only spoil the output.
_QUOTED_CHARS = 16
_QUOTED_LINES = 500


@dataclasses.dataclass(frozen=True, slots=True)
class ReadinessOptions:
    """The option ``readiness``: what a machine must have, and how long the gate waits."""

    ssh: bool = validators.field(validators.boolean, True)
    cuda: bool = validators.field(validators.boolean, True)
    k3s: bool = validators.field(validators.boolean, False)
    disk_free_gib_min: float = validators.field(validators.decimal(0), 5.0)
    memory_gib_min: float = validators.field(validators.decimal(0), 0.0)
    patience_s: float = validators.field(validators.decimal(10), 240.0)


@dataclasses.dataclass(frozen=True, slots=True)
class Context:
    """The surroundings of a call; ``report`` shows progress, ``replica`` sends copies of the ledger to another machine.

    ``scheduler``, ``prober`` and ``read_run_end`` are for tests.
    """

    base: pathlib.Path
    check: bool = False
    externals: Externals = Externals()
    scheduler: Scheduler | None = None
    prober: Prober | None = None
    read_run_end: ReadRunEnd | None = None
    report: t.Callable[[str], None] = lambda _line: None
    replica: SendReplica | None = None


def ensure_present(options: Options, context: Context) -> ModuleResult:
    """Return the result of ``node_pool`` with state present; a failed one names what still exists."""
    if context.scheduler is None:
        with ThreadScheduler() as scheduler:
            return ensure_present(options, dataclasses.replace(context, scheduler=scheduler))
    now = context.scheduler.now()
    request = _parse_request(options, now)
    home = StateHome(options["state_home"], request.cluster)
    folder = home.folder
    if blocked := find_unreadable(folder):
        raise RefusedError(f"nothing is ordered: {blocked}")
    providers = open_providers(options["providers"], context.externals)
    terms = _parse_terms(options, context.base)
    _check_request(request, providers, terms)
    machines = open_machines(home)
    memory, forgotten = machines.read()
    if context.check:
        content = read_ledger(folder)
        session = LedgerSession(content.events, ReadOnlyLedger())
        state = read_pool(request, providers, session, context.scheduler, memory)
        plan = _build_plan(state, now)
        for line in _describe_plan(
            state, plan, describe_pool(state, read_identities(providers), session.leases.values(), now), now
        ):
            context.report(scrub(line))
        _report_warnings(context, [*content.warnings, *([forgotten] if forgotten else [])])
        failure = _describe_failure(state, plan, now)
        failed = {"failed": True, "changed": False, "msg": f"{request.label}: {failure}"} if failure else {}
        return t.cast(ModuleResult, scrub_value({**plan, "ledger_warnings": list(content.warnings), **failed}))
    readiness = validators.section(ReadinessOptions)(options["readiness"] or {}, "readiness")
    prober = context.prober or _build_prober(options, readiness, folder)
    with open_ledger(home) as writer:
        content = read_ledger(folder)
        session = LedgerSession(content.events, writer, context.replica)
        outcome = create_pool(
            request,
            providers,
            session,
            context.scheduler,
            prober=prober,
            terms=terms,
            report=lambda line: context.report(scrub(line)),
            is_abandoned=watch_parent(),
            memory=memory,
            remember=machines.add,
        )
        session.update_replica()
    warnings = [*content.warnings, *(line for line in (session.replica_problem, forgotten) if line)]
    _report_warnings(context, warnings)
    result = _build_result(outcome, request, folder)
    unwritten = [event.to_dict() for event in session.unwritten]
    return t.cast(ModuleResult, scrub_value({**result, "ledger_warnings": warnings, "unwritten": unwritten}))


def _report_warnings(context: Context, warnings: t.Iterable[str]) -> None:
    for line in warnings:
        context.report(scrub(f"warning: {line}"))


def require_persistent_state(options: Options, variables: t.Container[str]) -> None:
    """Refuse to create machines where the state directory is deleted with the job (AWX), unless the user set one."""
    is_ephemeral = any(name in variables for name in ("awx_job_id", "tower_job_id"))
    state_home = validators.dictionary(options["state_home"] or {}, "muster_state")
    if is_ephemeral and not state_home.get("path") and state_home.get("store", "local") == "local":
        raise RefusedError(
            "the state directory is ephemeral (AWX job): the ledger of rented machines would be lost",
            "Set muster_reaper_host or muster_state.store, or muster_state.path to a folder that remains after the job",
        )


class ReadOnlyLedger:
    """The ledger of check mode: writing to it is a defect."""

    def append(self, event: object) -> None:
        raise InputError("check_mode", "would write the ledger")


def _parse_request(options: Options, now: float) -> PoolRequest:
    lease_s = options.get("lease_s")
    readiness = validators.section(ReadinessOptions)(options["readiness"] or {}, "readiness")
    return PoolRequest(
        cluster=parse_cluster_name(options["cluster"]),
        pool=parse_pool_name(options["pool"]),
        count=validators.integer(1, 1000)(options["count"], "count"),
        candidates=parse_candidates(options["candidates"] or [], tuple(find_providers())),
        timeout_at=now + validators.integer(60, 86400)(options["wait_timeout_s"], "wait_timeout_s"),
        max_price_usd_per_hour=_parse_usd(options, "max_price_usd_per_hour"),
        max_total_usd_per_hour=_parse_usd(options, "max_total_usd_per_hour"),
        run_id=validators.name(63)(options["run_id"], "run_id") if options.get("run_id") else None,
        deadline=format_time(now + validators.integer(300, 10**8)(lease_s, "lease_s")) if lease_s is not None else None,
        release=str(options["release"]) if options.get("release") else None,
        max_cost_usd=_parse_usd(options, "max_cost_usd"),
        mixed=options["mixed"] is True,
        max_replacements=validators.integer(0, 100)(options["max_replacements"], "max_replacements"),
        capacity_wait_s=validators.integer(0, 86400)(options["capacity_wait_s"], "capacity_wait_s"),
        patience_s=readiness.patience_s,
        gate=readiness.ssh,
        shrink=options.get("shrink") is True,
    )


def _parse_usd(options: Options, name: str) -> float | None:
    value = options.get(name)
    return None if value is None else validators.decimal(0)(value, name)


def _read_text(base: pathlib.Path, name: str, option: str) -> str:
    try:
        return (base / pathlib.Path(name).expanduser()).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8 text"
        raise InputError(option, f"cannot be read ({reason})") from None


def _parse_terms(options: Options, base: pathlib.Path) -> Terms:
    key, file = str(options.get("ssh_public_key") or ""), str(options.get("ssh_public_key_file") or "")
    if not key and not file:
        raise InputError("ssh_public_key", "is missing", "Give it, or ssh_public_key_file")
    line = public_key(key or _read_text(base, file, "ssh_public_key_file"))
    data = str(options.get("user_data") or "")
    if len(data.encode()) > _USER_DATA_LIMIT:
        raise InputError("user_data", "is larger than a megabyte", "Fetch what is large from a store")
    _remember_script(data)
    timeout_s = validators.decimal(0)(options["release_timeout_s"], "release_timeout_s")
    return Terms(line, data or None, timeout_s)


def _remember_script(script: str) -> None:
    """Keep a first-boot script out of all output: a provider may quote it in an error, whole, in a line, or by line."""
    lines = script.splitlines()[:_QUOTED_LINES]
    for text in (script.strip(), " ".join(script.split()), *(line.strip() for line in lines)):
        if len(text) >= _QUOTED_CHARS:
            remember(text)


def _check_request(request: PoolRequest, providers: t.Mapping[str, MachineProvider], terms: Terms) -> None:
    """Refuse what a provider does not support before anything is sent."""
    for index, candidate in enumerate(request.candidates):
        provider = providers.get(str(candidate.provider))
        if provider is not None:
            _check_candidate(f"candidates[{index}]", candidate, provider, terms)
    if request.is_cluster and request.count < 2:
        raise InputError("count", "must be at least 2 for a cluster")


def _check_candidate(path: str, candidate: Candidate, provider: MachineProvider, terms: Terms) -> None:
    capabilities = provider.capabilities
    if capabilities.image_required and not candidate.image:
        raise InputError(f"{path}.image", f"is required: {provider.name} starts containers or machines by image")
    if candidate.unit == "cluster" and not capabilities.clusters:
        raise InputError(f"{path}.unit", f"{provider.name} does not offer clusters")
    if terms.user_data and capabilities.user_data == "none":
        raise InputError("user_data", f"{provider.name} does not run a script at first boot", "Leave it out")


def _build_prober(options: Options, readiness: ReadinessOptions, folder: pathlib.Path) -> Prober | None:
    if not readiness.ssh:
        return None
    requirements = MachineRequirements(
        cuda=readiness.cuda,
        disk_free_gib_min=readiness.disk_free_gib_min,
        memory_gib_min=readiness.memory_gib_min,
        k3s=readiness.k3s,
    )
    identity = str(options.get("ssh_private_key_file") or "") or None
    return SshProber(folder / KNOWN_HOSTS, requirements, identity)


def _build_plan(state: PoolState, now: float) -> ModuleResult:
    """Return what would be done: the first choice for every missing machine, and what would be deleted."""
    orders = first_orders(state, now)
    before = sorted(slot.lease.name for slot in state.slots if slot.lease)
    surplus = sorted(item.instance.name for item in state.deletions)
    ordered = [
        f"new: {choice.offer.product} in {choice.offer.region or 'any region'} of {choice.offer.provider} "
        f"at {choice.offer.price_usd_per_hour:.2f} USD per hour"
        for choice in orders
    ]
    missing = sum(1 for slot in state.slots if slot.lease is None)
    reason = failure_reason(state, now)
    if not reason and len(orders) < missing:
        reason = f"offers for {len(orders)} of {missing} missing machines are known"
    return {
        "changed": bool(orders or surplus or missing),
        "nodes": [],
        "history": list(state.history),
        "planned": [choice.offer.to_dict() for choice in orders],
        "problem": reason,
        "diff": {"before": {"nodes": sorted(before + surplus)}, "after": {"nodes": before + ordered}},
    }


def _describe_plan(state: PoolState, plan: ModuleResult, kept: t.Iterable[str], now: float) -> t.Iterator[str]:
    """Yield what is there, what would be ordered and deleted, at what prices, and what is in the way."""
    yield from kept
    for item in t.cast("list[dict[str, t.Any]]", plan["planned"]):
        place = f"{item['product']} in {item['region'] or 'any region'} of {item['provider']}"
        yield f"would order {place}: {item['price_usd_per_hour']:.2f} USD per hour"
    for deletion in state.deletions:
        yield f"would delete {deletion.instance.name} ({format_price(deletion.price)}): {deletion.reason}"
    if plan["problem"] and not _describe_failure(state, plan, now):
        yield f"warning: {plan['problem']}"


def _describe_failure(state: PoolState, plan: ModuleResult, now: float) -> str:
    """Return why the call that the plan is of would fail, empty where an offer may still come."""
    is_open = state.request.capacity_wait_s > 0 or next_candidate(state, now) is not None
    return failure_reason(state, now) or ("" if is_open else str(plan["problem"]))


def _build_result(outcome: CreateOutcome, request: PoolRequest, folder: pathlib.Path) -> ModuleResult:
    proof, state = outcome.proof, outcome.state
    before = sorted(slot.lease.name for slot in state.slots if slot.lease and slot.lease.protected)
    after = before if outcome.failure else sorted(slot.lease.name for slot in state.slots if slot.lease)
    return {
        "changed": bool(outcome.order_count or proof.leases or state.history),
        "nodes": [] if outcome.failure else [_node_entry(item, name, folder) for item, name in _list_machines(state)],
        "history": list(state.history),
        "placed": outcome.order_count,
        "price_usd_per_hour": _total_price(outcome),
        "deadline": outcome.deadline,
        "not_proved_gone": list(proof.billing),
        "diff": {"before": {"nodes": before}, "after": {"nodes": after}},
        **_build_failure(outcome, request),
    }


def _build_failure(outcome: CreateOutcome, request: PoolRequest) -> ModuleResult:
    """Return ``failed`` and ``msg`` for an incomplete pool, or for machines that are not proved gone; else nothing."""
    proof = outcome.proof
    if outcome.failure:
        ended = "".join(f"; {part}" for part in list_proved(proof) if not part.startswith("0 "))
        remaining = "" if proof.clean else f"; may still be billing: {'; '.join(proof.describe_remaining())}"
        return {"failed": True, "msg": f"{request.label}: {outcome.failure}{ended}{remaining}"}
    if proof.billing:
        remaining = "; ".join(proof.describe_remaining())
        msg = f"{request.label} is complete, but other machines may still be billing: {remaining}"
        return {"failed": True, "msg": msg}
    return {}


def _list_machines(state: PoolState) -> list[tuple[Instance, str]]:
    """Return the machines with their names: those of the ledger, whatever they are renamed to at their provider."""
    found = [slot.lease for slot in state.slots if slot.lease and slot.lease.instance]
    return [
        (item, item.name if lease.instance.members else lease.name)
        for lease in found
        if lease.instance
        for item in lease.instance.machines
    ]


def _total_price(outcome: CreateOutcome) -> float | None:
    """Return the price of what remains: of a failed call only what was complete before, and what may still bill."""
    leases = [slot.lease for slot in outcome.state.slots if slot.lease]
    kept = [lease.price for lease in leases if lease.protected or not outcome.failure]
    prices = [*kept, outcome.proof.residual_usd_per_hour]
    return None if None in prices else round(sum(price for price in prices if price is not None), 6)


def _node_entry(item: Instance, name: str, folder: pathlib.Path) -> ModuleResult:
    """Return a node record with its SSH endpoint, and the arguments that pin its host key."""
    endpoint = dataclasses.asdict(item.ssh) if item.ssh else {"host": None, "port": None, "user": None}
    arguments = shlex.join(ssh_options(folder / KNOWN_HOSTS, item.provider, item.id))
    return {**item.record, "name": name, "ssh": endpoint, "ssh_arguments": arguments}
