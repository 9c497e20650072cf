# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What creating and deleting machines need: a provider's API, the readiness probe, and time with threads.

The providers themselves are another capability (``_providers``); a runner hands them in.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import concurrent.futures
import time
import typing as t

from ...module_utils._model.lease import Instance, Leftover, OrderResult, ProviderTraits
from ...module_utils._model.offer import Offer, OfferQuery, Order
from .readiness import ProbeReport


class AccountApi(t.Protocol):
    """One account at a provider, whose instances can be listed and deleted; methods may run in any thread."""

    @property
    def name(self) -> str:
        """Return the provider's name, such as ``lambda``."""

    @property
    def account(self) -> str:
        """Return the account's fingerprint; absence proves something in the account of the intent only."""

    @property
    def traits(self) -> ProviderTraits:
        """Return the API's pace and delays."""

    def list_instances(self) -> tuple[Instance, ...]:
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

    def create(self, order: Order) -> OrderResult:
        """Place one order; an answer of the provider is never raised, a call that may have worked never repeated."""


class Prober(t.Protocol):
    """Runs the readiness probe on a machine over SSH."""

    def probe(self, machine: Instance) -> ProbeReport:
        """Return the probe's report for a machine with an SSH endpoint; never raises for one that does not answer."""


class Scheduler(t.Protocol):
    """Time and threads, so that tests run hours in milliseconds."""

    def now(self) -> float:
        """Return the Unix time; it never decreases."""

    def submit[T](self, work: t.Callable[[], T]) -> concurrent.futures.Future[T]:
        """Start ``work`` in the background."""

    def wait[T](self, pending: t.Collection[concurrent.futures.Future[T]], until: float) -> None:
        """Return when one of ``pending`` is done, at the time ``until``, or a little earlier: callers ask again."""


# A planner that waits checks this often whether its caller has ended.
_STEP_S = 2.0


class ThreadScheduler:
    """The machine's clock and a pool of threads. Use as a context manager."""

    def __init__(self, threads: int = 32) -> None:
        self._pool = concurrent.futures.ThreadPoolExecutor(threads, thread_name_prefix="muster-provision")
        # A clock that is set back in the middle must not make a settling time endless.
        self._offset = time.time() - time.monotonic()

    def __enter__(self) -> ThreadScheduler:
        return self

    def __exit__(self, *_failure: object) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def now(self) -> float:
        return time.monotonic() + self._offset

    def submit[T](self, work: t.Callable[[], T]) -> concurrent.futures.Future[T]:
        return self._pool.submit(work)

    def wait[T](self, pending: t.Collection[concurrent.futures.Future[T]], until: float) -> None:
        timeout = min(_STEP_S, max(0.0, until - self.now()))
        if pending:
            concurrent.futures.wait(pending, timeout, concurrent.futures.FIRST_COMPLETED)
        else:
            time.sleep(timeout)
