# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What creating and deleting machines need: a provider's API, the readiness probe, and time with threads.

The providers themselves are another capability (``_providers``); a runner hands them in.
"""

from __future__ import annotations

import concurrent.futures
import os
import queue
import threading
import time
import typing as t

from ...module_utils._model.errors import MusterError, TransportError
from ...module_utils._model.lease import AccountIdentity, Instance, Leftover, Listing, OrderResult, ProviderTraits
from ...module_utils._model.offer import Hardware, Offer, OfferQuery, Order
from .readiness import ProbeReport


class AccountApi(t.Protocol):
    """One account at a provider, whose instances can be listed and deleted; methods may run in any thread."""

    @property
    def name(self) -> str:
        """Return the provider's name, such as ``lambda``."""

    @property
    def account(self) -> str:
        """Return the account's name, its fingerprint without one; absence proves something in that account only."""

    @property
    def fingerprint(self) -> str:
        """Return the credential's fingerprint, whatever the account is called."""

    @property
    def api(self) -> str:
        """Return the API's address; behind another one is another world, even for the same credential."""

    @property
    def traits(self) -> ProviderTraits:
        """Return the API's pace and delays."""

    def read_listing(self) -> Listing:
        """Return everything that exists in the account, ours or not; raise TransportError when it is unknown."""

    def delete(self, instance: Instance) -> bool:
        """Delete by id: true when the provider accepted it, false when it does not know the id; else raise."""

    def leftovers(self, clusters: t.Collection[str]) -> tuple[Leftover, ...]:
        """Return what carries a name of these clusters and is not a machine (volumes, file systems, addresses)."""


class ProviderApi(AccountApi, t.Protocol):
    """One account at a provider of machines."""

    def offers(self, query: OfferQuery, count: int = 1) -> tuple[Offer, ...]:
        """Return what can be ordered now and may fit; raise TransportError when it is unknown.

        ``count`` is the number of machines of a unit cluster.
        """

    def knows(self, instance: Instance) -> bool:
        """Return whether the provider knows a machine by its id: a second witness beside a listing that lacks it.

        Raise TransportError when that is not known.
        """

    def create(self, order: Order) -> OrderResult:
        """Place one order; an answer of the provider is never raised, a call that may have worked never repeated."""


class Prober(t.Protocol):
    """Runs the readiness probe on a machine over SSH."""

    def probe(self, machine: Instance, ordered: Hardware) -> ProbeReport:
        """Return the probe's report for a machine with an SSH endpoint; never raises for one that does not answer.

        It must show what was ``ordered``, and what its provider lists for it.
        """


class Scheduler(t.Protocol):
    """Time and threads, so that tests run hours in milliseconds."""

    def now(self) -> float:
        """Return the Unix time; it never decreases."""

    def submit[T](self, work: t.Callable[[], T]) -> concurrent.futures.Future[T]:
        """Start ``work`` in the background."""

    def wait[T](self, pending: t.Collection[concurrent.futures.Future[T]], until: float) -> None:
        """Return when one of ``pending`` is done, at the time ``until``, or a little earlier: callers ask again."""


def read_identities(accounts: t.Mapping[str, AccountApi]) -> dict[str, AccountIdentity]:
    """Return the identity of each account, by the name of its provider."""
    return {name: AccountIdentity(item.account, item.fingerprint, item.api) for name, item in accounts.items()}


def explain_failure(error: Exception) -> str:
    """Return why a call failed. An unforeseen answer is a problem of that call, not of all the others."""
    if isinstance(error, MusterError):
        return str(error)
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    place = f" at {os.path.basename(trace.tb_frame.f_code.co_filename)}:{trace.tb_lineno}" if trace else ""
    return f"the answer cannot be read ({type(error).__name__}{place})"


def ask_for_id(account: ProviderApi, instance: Instance) -> tuple[bool | None, str]:
    """Return whether a provider knows a machine by its id, None with the problem where that is not known."""
    try:
        return account.knows(instance), ""
    except Exception as error:
        return None, explain_failure(error)


def await_answer[T](scheduler: Scheduler, work: concurrent.futures.Future[T], until: float) -> T:
    """Return the result of a call, or raise TransportError when it has none at ``until``."""
    while not work.done():
        if scheduler.now() >= until:
            raise TransportError("no complete answer in time")
        scheduler.wait([work], until)
    return work.result()


# A planner that waits checks this often whether its caller has ended.
_STEP_S = 2.0


class ThreadScheduler:
    """The machine's clock and a pool of threads. Use as a context manager.

    The threads are daemons: a call that never ends keeps neither the ledger nor the process.
    """

    def __init__(self, threads: int = 32) -> None:
        self._limit = threads
        self._threads: list[threading.Thread] = []
        self._idle = threading.Semaphore(0)
        self._calls: queue.SimpleQueue[t.Callable[[], None] | None] = queue.SimpleQueue()
        # A clock that is set back in the middle must not make a settling time endless.
        self._offset = time.time() - time.monotonic()

    def __enter__(self) -> ThreadScheduler:
        return self

    def __exit__(self, *_failure: object) -> None:
        for _thread in self._threads:
            self._calls.put(None)

    def now(self) -> float:
        return time.monotonic() + self._offset

    def submit[T](self, work: t.Callable[[], T]) -> concurrent.futures.Future[T]:
        answer: concurrent.futures.Future[T] = concurrent.futures.Future()

        def call() -> None:
            try:
                answer.set_result(work())
            except BaseException as error:
                answer.set_exception(error)

        self._calls.put(call)
        if not self._idle.acquire(blocking=False) and len(self._threads) < self._limit:
            thread = threading.Thread(target=self._serve, daemon=True, name=f"muster-provision-{len(self._threads)}")
            self._threads.append(thread)
            thread.start()
        return answer

    def _serve(self) -> None:
        while (call := self._calls.get()) is not None:
            call()
            self._idle.release()

    def wait[T](self, pending: t.Collection[concurrent.futures.Future[T]], until: float) -> None:
        timeout = min(_STEP_S, max(0.0, until - self.now()))
        if pending:
            concurrent.futures.wait(pending, timeout, concurrent.futures.FIRST_COMPLETED)
        else:
            time.sleep(timeout)
