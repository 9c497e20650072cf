# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Create a key under the same rules as a machine: an intent first, a token in its name, no blind repeat.

A key whose answer was lost is useless, because it is shown only once. Its lease stays open, so that a deletion finds
it, and another key is created under another token.
"""

from __future__ import annotations

import dataclasses
import typing as t

from ...module_utils._model.errors import ProviderError
from ...module_utils._model.lease import InstanceName, OrderAccepted, OrderRefused, OrderResult, Resource
from ...module_utils._model.ledger import LedgerEvent
from ...module_utils._model.timestamps import format_time
from .api import AccountApi, Scheduler
from .ledger.ledger_session import LedgerSession

ATTEMPTS = 3
_THROTTLE_S = 5.0
_THROTTLE_CAP_S = 60.0


@dataclasses.dataclass(frozen=True, slots=True)
class KeyRequest:
    """Which resource to create for which cluster; ``pool`` is the word in its name."""

    cluster: str
    pool: str
    resource: Resource
    run_id: str | None = None
    deadline: str | None = None


def create_key[T](
    request: KeyRequest,
    account: AccountApi,
    create: t.Callable[[str], tuple[OrderResult, T | None]],
    session: LedgerSession,
    scheduler: Scheduler,
    tokens: t.Callable[[t.Collection[str]], str],
) -> T:
    """Return what ``create`` created under the name that it is called with.

    Raises ProviderError when the provider refuses, or gives no usable answer three times.
    """
    reason = ""
    for _attempt in range(ATTEMPTS):
        token = tokens(session.tokens)
        name = str(InstanceName(request.cluster, request.pool, 0, token))
        intent = LedgerEvent(
            at=format_time(scheduler.now()),
            cluster=request.cluster,
            token=token,
            event="intent",
            resource=request.resource,
            provider=account.name,
            account=account.account,
            fingerprint=account.fingerprint,
            api=account.api or None,
            pool=request.pool,
            name=name,
            run_id=request.run_id,
            deadline=request.deadline,
        )
        session.record_intent(intent)
        answer, key = create(name)
        at = format_time(scheduler.now())
        if isinstance(answer, OrderAccepted):
            session.record(dataclasses.replace(intent, at=at, event="created", id=answer.id))
            if key is not None:
                return key
        if isinstance(answer, OrderRefused):
            session.record(dataclasses.replace(intent, at=at, event="failed", reason=answer.reason, settled=True))
            if answer.why != "throttled":
                raise ProviderError(f"{account.name} refused: {answer.reason}")
            scheduler.wait((), scheduler.now() + min(answer.retry_after_s or _THROTTLE_S, _THROTTLE_CAP_S))
        reason = answer.reason
    raise ProviderError(f"{account.name} gave no usable answer {ATTEMPTS} times ({reason})", "Try again later")
