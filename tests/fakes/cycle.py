# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rent, use, give back: one whole life of a pool at one fake provider, with a fault or a crash somewhere in it."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import threading
import typing as t
from collections.abc import Callable, Iterator

from ansible_collections.muster.training.plugins.module_utils._http.clock import Deadline
from ansible_collections.muster.training.plugins.module_utils._http.messages import HttpRequest, HttpResponse
from ansible_collections.muster.training.plugins.module_utils._http.urls import Origin
from ansible_collections.muster.training.plugins.module_utils._model.errors import MusterError
from ansible_collections.muster.training.plugins.module_utils._model.lease import TeardownProof
from ansible_collections.muster.training.plugins.module_utils._model.ledger import Lease, LedgerEvent
from ansible_collections.muster.training.plugins.module_utils._model.offer import Candidate
from ansible_collections.muster.training.plugins.module_utils._secrets.secret import Secret
from ansible_collections.muster.training.plugins.plugin_utils._providers.connection import ProviderConnection
from ansible_collections.muster.training.plugins.plugin_utils._providers.lambda_cloud.provision import LambdaProvider
from ansible_collections.muster.training.plugins.plugin_utils._providers.runpod.provision import RunpodProvider
from ansible_collections.muster.training.plugins.plugin_utils._providers.shadeform.provision import ShadeformProvider
from ansible_collections.muster.training.plugins.plugin_utils._providers.tailscale.provision import (
    KeyOrder,
    TailscaleAccount,
)
from ansible_collections.muster.training.plugins.plugin_utils._providers.vastai.provision import VastProvider
from ansible_collections.muster.training.plugins.plugin_utils._provision.bill.due_rules import find_due_leases
from ansible_collections.muster.training.plugins.plugin_utils._provision.create import Terms, create_pool
from ansible_collections.muster.training.plugins.plugin_utils._provision.create_key import KeyRequest, create_key
from ansible_collections.muster.training.plugins.plugin_utils._provision.create_state import PoolRequest
from ansible_collections.muster.training.plugins.plugin_utils._provision.delete import delete_leases
from ansible_collections.muster.training.plugins.plugin_utils._provision.delete_state import DeleteRequest
from ansible_collections.muster.training.plugins.plugin_utils._provision.ledger.ledger_session import LedgerSession

from .api import STRANGERS, FakeApi, Thing, _server
from .lambda_cloud import FakeLambda
from .runpod import FakeRunpod
from .shadeform import FakeShadeform
from .sim_provider import SimProber
from .tailscale import FakeTailscale
from .vastai import FakeVast
from .virtual import InlineScheduler, VirtualClock
from .wire import TOKEN, FakeWire

# So many lines the disk refuses in a row; by then somebody has made room.
FULL_LINES = 5
MAX_REPLACEMENTS = 3
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIPm3qL9yqKZ1b0T2cCqf5xH0c7m4Qd8r user@host"
NODES = 2
# For one machine of two, or for half a cluster; the fakes sell at 2 to 3 USD.
CAP = 10.0


class Crash(BaseException):
    """The controller dies here: nothing after this line runs."""


@dataclasses.dataclass(frozen=True)
class Product:
    """Something that can be rented, with its fake and its client."""

    name: str
    fake: Callable[[VirtualClock], FakeApi]
    client: Callable[[ProviderConnection], t.Any]
    unit: str = "machine"


PRODUCTS = {
    item.name: item
    for item in (
        Product("lambda", lambda clock: FakeLambda(clock, boot_s=10.0), LambdaProvider),
        Product("runpod", lambda clock: FakeRunpod(clock, boot_s=10.0), RunpodProvider),
        Product("runpod_cluster", lambda clock: FakeRunpod(clock, boot_s=10.0), RunpodProvider, "cluster"),
        Product("vastai", lambda clock: FakeVast(clock, boot_s=10.0, asks=6), VastProvider),
        Product("shadeform", lambda clock: FakeShadeform(clock, boot_s=10.0), ShadeformProvider),
        Product("tailscale", FakeTailscale, TailscaleAccount),
    )
}


class Server:
    """One loopback server for many cases: it serves whichever fake is set."""

    def __init__(self) -> None:
        self.api: FakeApi | None = None

    def serve(self, method: str, target: str, headers: dict[str, str], body: bytes) -> t.Any:
        assert self.api is not None
        return self.api.serve(method, target, headers, body)

    @contextlib.contextmanager
    def running(self) -> Iterator[str]:
        server = _server(self)  # type: ignore[arg-type]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            server.server_close()
            thread.join(5)


@dataclasses.dataclass
class CallCrash:
    """Kills the controller at the ``nth`` HTTP call: before it leaves, or after the server has acted."""

    nth: int = 0
    after: bool = False
    late: bool = False


class CrashWire:
    """The wire of a controller that may die in the middle of a call."""

    def __init__(self, clock: VirtualClock, plan: CallCrash | None) -> None:
        self._wire = FakeWire(clock)
        self._clock = clock
        self.plan = plan
        self.count = 0

    def __call__(self, origin: Origin, request: HttpRequest, deadline: Deadline) -> HttpResponse:
        self.count += 1
        if self.plan and self.count == self.plan.nth:
            self.plan, plan = None, self.plan
            if plan.late:
                self._clock.later(60.0, lambda: t.cast(None, self._wire(origin, request, deadline)))
            elif plan.after:
                self._wire(origin, request, deadline)
            raise Crash
        return self._wire(origin, request, deadline)


class CrashLedger:
    """A ledger in memory whose writer may die before or after its ``nth`` line, or in the middle of it."""

    def __init__(self) -> None:
        self.events: list[LedgerEvent] = []
        self.nth = 0
        self.full_from = 0
        self.when: t.Literal["before", "after"] = "after"
        self.count = 0

    def append(self, event: LedgerEvent) -> None:
        self.count += 1
        if self.full_from and self.full_from <= self.count < self.full_from + FULL_LINES:
            raise MusterError("the disk is full")
        if self.count == self.nth and self.when == "before":
            raise Crash
        self.events.append(event)
        if self.count == self.nth:
            raise Crash


class Cycle:
    """A controller, its ledger and one provider. Every step begins like a new process, from the ledger alone."""

    def __init__(self, product: Product, server: Server, url: str, *, crash: CallCrash | None = None) -> None:
        self.product = product
        self.clock = VirtualClock()
        self.api = server.api = product.fake(self.clock)
        self.ledger = CrashLedger()
        self.wire = CrashWire(self.clock, crash)
        secret = Secret(TOKEN, "api_token", token=True)
        self._access = ProviderConnection(
            secret, api_url=url + self.api.base_path, exchange=self.wire, clock=self.clock
        )
        self._tokens = (f"{number:08x}" for number in itertools.count(1))
        self.completed = False
        self.failures: list[str] = []
        self.untrue: list[str] = []
        self.rents = 0
        self._strangers = [self.api.stranger(name).id for name in STRANGERS]

    @property
    def ours(self) -> list[Thing]:
        """What bills and is ours."""
        return [item for item in self.api.alive() if item.id not in self._strangers]

    @property
    def touched(self) -> int:
        """How many machines of others are gone."""
        return sum(self.api.find(key) is None for key in self._strangers)

    @property
    def excess(self) -> int:
        """How many orders took effect beyond what may be replaced."""
        made = [item for item in self.api.things.values() if item.id not in self._strangers]
        if self.product.unit == "cluster":
            made, count = [item for item in made if item.fields["kind"] == "cluster"], 1
        else:
            count = NODES
        return max(0, len(made) - count * (MAX_REPLACEMENTS + 1) * self.rents)

    @property
    def keeper(self) -> t.Any:
        return self.product.client(self._access)

    def run(self, *, again: bool = False) -> TeardownProof:
        """Live the whole life; after a crash the next command starts anew, ``again`` with another rent."""
        for step in (self._rent, *([self._rent] if again else []), self._use):
            try:
                step()
            except Crash:
                self.failures.append("crash")
        proof = TeardownProof(billing=({"problem": "never ran"},))
        for _attempt in range(4):
            try:
                proof = self.teardown()
            except Crash:
                self.failures.append("crash")
                continue
            self._check_promise(proof, "teardown")
            if proof.clean:
                break
            self.clock.sleep(300)
        return proof

    def _check_promise(self, proof: TeardownProof, what: str) -> None:
        listed = [item.name for item in self.ours if item.listed(self.clock.time())]
        within = {item["id"] for item in proof.within_lease}
        if proof.clean and [item for item in self.ours if item.id not in within]:
            self.untrue.append(f"{what} is clean, listed are {listed}")

    def reap(self) -> TeardownProof:
        """Do what a scheduled reaper does, until it is clean; the last proof is returned."""
        proof = TeardownProof(billing=({"problem": "never ran"},))
        for _pass in range(6):
            keeper = self.keeper
            book = LedgerSession(self.ledger.events, self.ledger)
            due = find_due_leases(book.leases.values(), {}, self.clock.time())
            request = DeleteRequest("lab", self.clock.time() + 900, whole=True)

            def is_due(lease: Lease, keys: t.Collection[t.Any] = due) -> bool:
                return not lease.open or lease.key in keys

            try:
                proof = delete_leases(request, is_due, {keeper.name: keeper}, book, InlineScheduler(self.clock))
            except Crash:
                self.failures.append("crash")
                continue
            self._check_promise(proof, "reap")
            if proof.clean:
                break
            self.clock.sleep(600)
        return proof

    def _rent(self) -> None:
        self.rents += 1
        try:
            self.completed = self._rent_machines() if self.product.name != "tailscale" else self._mint()
        except MusterError as error:
            self.completed = False
            self.failures.append(str(error))

    def _rent_machines(self) -> bool:
        provider = self.product.name.removesuffix("_cluster")
        candidate = Candidate(
            provider=provider, gpu_model="H100", gpu_count=1, image="ubuntu", unit=self.product.unit, kind=None
        )
        limit = self.clock.time() + 7200
        request = PoolRequest("lab", "h100", NODES, (candidate,), limit, CAP, max_replacements=MAX_REPLACEMENTS)
        outcome = create_pool(
            request,
            {provider: self.keeper},
            LedgerSession(self.ledger.events, self.ledger),
            InlineScheduler(self.clock),
            prober=SimProber(),
            terms=Terms(ssh_public_key=KEY),
            tokens=lambda _taken: next(self._tokens),
        )
        if outcome.failure:
            self.failures.append(outcome.failure)
        elif len([item for item in self.ours if item.fields.get("kind") != "cluster"]) < NODES:
            self.untrue.append("rent is complete, but machines do not exist")
        elif not outcome.proof.billing and len(self.ours) > NODES + (self.product.unit == "cluster"):
            self.untrue.append("rent is complete without a word of other machines that bill")
        return not outcome.failure

    def _mint(self) -> bool:
        keeper = self.keeper
        minted = create_key(
            KeyRequest("lab", "key", "auth_key"),
            keeper,
            lambda name: keeper.create_key(KeyOrder(name, ("tag:rented",))),
            LedgerSession(self.ledger.events, self.ledger),
            InlineScheduler(self.clock),
            lambda _taken: next(self._tokens),
        )
        lease = next(
            item for item in LedgerSession(self.ledger.events, self.ledger).leases.values() if item.id == minted.id
        )
        api = t.cast(FakeTailscale, self.api)
        for _node in range(NODES):
            api.device(lease.name)
        return True

    def _use(self) -> None:
        """A second ``rent`` of the same pool is what ``train`` begins with; it must order nothing."""
        if self.completed and self.product.name != "tailscale":
            self.rents += 1
            before = len([call for call in self.api.calls if call[0].startswith("create")])
            try:
                self._rent_machines()
            except MusterError as error:
                self.failures.append(str(error))
            after = len([call for call in self.api.calls if call[0].startswith("create")])
            if after != before and not self.api.tripped:
                self.failures.append("ordered again")

    def teardown(self) -> TeardownProof:
        """Give everything back, as the playbook does."""
        keeper = self.keeper
        request = DeleteRequest("lab", self.clock.time() + 1800)
        book = LedgerSession(self.ledger.events, self.ledger)
        return delete_leases(request, lambda _lease: True, {keeper.name: keeper}, book, InlineScheduler(self.clock))

    def settle(self) -> int:
        """Let everything happen that is still on its way; return how many things bill then."""
        self.clock.sleep(7200)
        return len(self.ours)
