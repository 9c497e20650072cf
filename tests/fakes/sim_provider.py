# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A provider without HTTP, for tests of provisioning alone: machines in a dict, answers by script."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.muster.training.plugins.module_utils._model.errors import ApiError, TransportError
from ansible_collections.muster.training.plugins.module_utils._model.lease import (
    Instance,
    InstanceState,
    Leftover,
    Listing,
    OrderAccepted,
    OrderResult,
    OrderUnsettled,
    ProviderTraits,
    SshEndpoint,
    parse_instance_name,
)
from ansible_collections.muster.training.plugins.module_utils._model.offer import Hardware, Offer, OfferQuery, Order
from ansible_collections.muster.training.plugins.plugin_utils._provision.readiness import ProbeReport

from .virtual import VirtualClock


@dataclasses.dataclass
class SimMachine:
    """One machine; times are Unix seconds."""

    id: str
    name: str
    price: float | None
    made_at: float
    boot_s: float
    visible_from: float
    host: str | None = None
    state: InstanceState | None = None
    record: dict[str, t.Any] = dataclasses.field(default_factory=dict)


class SimProvider:
    """One account. ``answers`` are taken one a create: a CreateAnswer, ``late`` seconds, or None for success."""

    def __init__(
        self,
        clock: VirtualClock,
        name: str = "lambda",
        *,
        account: str = "acc1",
        traits: ProviderTraits | None = None,
        offers: t.Sequence[Offer] = (),
        boot_s: float = 60.0,
    ) -> None:
        self.name = name
        self.account = account
        self.fingerprint = account
        self.api = f"https://{name}.example"
        self.traits = traits or ProviderTraits()
        self.clock = clock
        self.stock = list(offers)
        self.boot_s = boot_s
        self.machines: dict[str, SimMachine] = {}
        self.answers: list[OrderResult | float | None] = []
        self.list_faults: list[t.Any] = []
        self.look_faults: list[t.Any] = []
        self.offer_faults: list[t.Any] = []
        self.delete_faults: list[t.Any] = []
        self.orders: list[Order] = []
        self.order_times: list[float] = []
        self.deleted: list[str] = []
        self.lag_s = 0.0
        self.hosts: list[str] = []
        self.states: list[InstanceState] = []
        self.records: list[dict[str, t.Any]] = []
        self.left: tuple[Leftover, ...] = ()
        self._count = 0

    def offers(self, query: OfferQuery, count: int = 1) -> tuple[Offer, ...]:
        _next(self.offer_faults)
        return tuple(self.stock)

    def make(self, name: str, price: float | None = 1.0) -> str:
        """Bring a machine into being, as an order does."""
        self._count += 1
        key = f"{self.name}-{self._count}"
        now = self.clock.time()
        host = self.hosts.pop(0) if self.hosts else None
        state = self.states.pop(0) if self.states else None
        self.machines[key] = SimMachine(key, name, price, now, self.boot_s, now + self.lag_s, host, state)
        if self.records:
            self.machines[key].record = self.records.pop(0)
        return key

    def create(self, order: Order) -> OrderResult:
        self.orders.append(order)
        self.order_times.append(self.clock.time())
        answer = self.answers.pop(0) if self.answers else None
        if answer is None:
            return OrderAccepted(self.make(order.name, order.offer.price_usd_per_hour))
        if isinstance(answer, float):
            self.clock.later(answer, lambda: t.cast(None, self.make(order.name)))
            return OrderUnsettled("timed out")
        if isinstance(answer, OrderAccepted):
            return OrderAccepted(self.make(order.name), answer.usable, answer.reason)
        return answer

    def read_listing(self) -> Listing:
        return Listing(self.list_instances())

    def list_instances(self) -> tuple[Instance, ...]:
        fault = _next(self.list_faults)
        if fault == "empty":
            return ()
        now = self.clock.time()
        return tuple(self._instance(item, now) for item in self.machines.values() if item.visible_from <= now)

    def _instance(self, item: SimMachine, now: float) -> Instance:
        running: InstanceState = "running" if now >= item.made_at + item.boot_s else "creating"
        state = item.state or running
        parts = parse_instance_name(item.name)
        return Instance(
            provider=self.name,
            id=item.id,
            name=item.name,
            token=parts.token if parts else None,
            state=state,
            detail=state,
            terminal=state == "failed",
            price_usd_per_hour=item.price,
            ssh=SshEndpoint("192.0.2.1", 22, "root") if state == "running" else None,
            host=item.host,
            record=item.record,
        )

    def knows(self, instance: Instance) -> bool:
        _next(self.look_faults)
        return instance.id in self.machines

    def delete(self, instance: Instance) -> bool:
        fault = _next(self.delete_faults)
        if fault == "404":
            return False
        self.deleted.append(instance.id)
        return self.machines.pop(instance.id, None) is not None

    def leftovers(self, clusters: t.Collection[str]) -> tuple[Leftover, ...]:
        return self.left


def _next(faults: list[t.Any]) -> t.Any:
    """Take the next fault: an exception is raised, a word returned, None means that nothing is wrong."""
    for fault in faults[:1]:
        del faults[0]
        if isinstance(fault, Exception):
            raise fault
        return fault
    return None


class SimProber:
    """A prober by script: reports are taken one a probe; without any left, a machine is ready."""

    def __init__(self, *reports: ProbeReport) -> None:
        self.reports = list(reports)
        self.seen: list[str] = []
        self.ordered: list[Hardware] = []

    def probe(self, machine: Instance, ordered: Hardware) -> ProbeReport:
        self.seen.append(machine.id)
        self.ordered.append(ordered)
        return self.reports.pop(0) if self.reports else ProbeReport("ready", True)


def h100(provider: str = "lambda", price: float = 2.0, **more: t.Any) -> Offer:
    """Return an offer of one H100 machine."""
    values: dict[str, t.Any] = {"gpu_model": "H100", "gpu_count": 1, "k3s_capable": True, **more}
    return Offer(
        provider, values.pop("product", "gpu_1x_h100"), values.pop("region", "us-east-1"), "vm", price, **values
    )


def outage() -> TransportError:
    """Return the error of a provider that does not answer."""
    return ApiError("GET", "/instances", 503)
