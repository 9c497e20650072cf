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
from ansible_collections.muster.training.plugins.module_utils._model.ledger import LedgerEvent
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
from ansible_collections.muster.training.plugins.plugin_utils._provision.create import Terms, create_pool
from ansible_collections.muster.training.plugins.plugin_utils._provision.create_key import KeyRequest, create_key
from ansible_collections.muster.training.plugins.plugin_utils._provision.create_state import PoolRequest
from ansible_collections.muster.training.plugins.plugin_utils._provision.delete import delete_leases
from ansible_collections.muster.training.plugins.plugin_utils._provision.delete_state import DeleteRequest
from ansible_collections.muster.training.plugins.plugin_utils._provision.ledger.ledger_session import LedgerSession

from .api import FakeApi, _server
from .lambda_cloud import FakeLambda
from .runpod import FakeRunpod
from .shadeform import FakeShadeform
from .sim_provider import SimProber
from .tailscale import FakeTailscale
from .vastai import FakeVast
from .virtual import InlineScheduler, VirtualClock
from .wire import TOKEN, FakeWire

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIPm3qL9yqKZ1b0T2cCqf5xH0c7m4Qd8r user@host"
NODES = 2


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
        self.when: t.Literal["before", "after"] = "after"
        self.count = 0

    def append(self, event: LedgerEvent) -> None:
        self.count += 1
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
            if proof.clean:
                break
            self.clock.sleep(300)
        return proof

    def _rent(self) -> None:
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
        request = PoolRequest("lab", "h100", NODES, (candidate,), self.clock.time() + 7200)
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
        return len(self.api.alive())
