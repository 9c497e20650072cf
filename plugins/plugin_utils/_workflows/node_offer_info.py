# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""List the offers of all configured providers, filtered and sorted by price per GPU-hour."""

from __future__ import annotations

import concurrent.futures
import time
from collections.abc import Mapping

from ...module_utils._model import validators
from ...module_utils._model.errors import InputError, ProviderError, TransportError
from ...module_utils._model.machine_memory import MachineMemory
from ...module_utils._model.offer import Offer, OfferQuery, matches, sort_by_price
from ...module_utils._model.timestamps import format_whole_seconds
from ...module_utils._secrets.scrubber import scrub
from .._providers.base import MachineProvider
from .node_pool.accounts import Externals, ModuleResult, Options, open_providers
from .shared.open_ledger import open_machines
from .shared.state_dir import StateHome

QUERY = (
    "product", "regions", "kind", "unit", "gpu_model", "gpu_count", "gpu_memory_gib_min", "memory_gib_min",
    "max_price_usd_per_hour", "k3s_capable", "network_types",
)  # fmt: skip


def find_offers(options: Options, externals: Externals | None = None) -> ModuleResult:
    """Return the result of ``node_offer_info``.

    A provider that does not answer is named in ``problems``; it is an error only when no other answered.
    """
    providers = open_providers(options["providers"], externals or Externals())
    if not providers:
        raise InputError(
            "providers", "does not name a provider of machines", "Add one, or set its environment variable"
        )
    values = {key: options[key] for key in QUERY if options.get(key) not in (None, [])}
    query = validators.section(OfferQuery)(values, "query")
    count = validators.integer(1, 250)(options["count"], "count")
    listed, problems = _list_offers(providers, query, count)
    if problems and not listed:
        raise ProviderError(f"no offers could be read: {'; '.join(problems.values())}")
    fitting = sort_by_price(item for item in listed if matches(query, item))
    limit = validators.integer(0)(options["limit"], "limit")
    memory, forgotten = open_machines(StateHome(options.get("state_home"), str(options["cluster"]))).read()
    now = time.time()
    if options["available_only"]:
        fitting = tuple(item for item in fitting if item.available is not False)
    return {
        "changed": False,
        "offers": [_show(item, memory, now) for item in fitting[:limit]],
        "found": len(fitting),
        "problems": [{"provider": name, "problem": text} for name, text in sorted(problems.items())],
        **({"warnings": [forgotten]} if forgotten else {}),
    }


def _show(offer: Offer, memory: MachineMemory, now: float) -> dict[str, object]:
    """Return the public form of an offer, with why its machine is avoided, as far as the offer says which it is."""
    avoided = memory.find_host(offer.provider, offer.host, now)
    return {
        **offer.to_dict(),
        "avoided_until": format_whole_seconds(avoided.until) if avoided else None,
        "avoided_reason": avoided.describe() if avoided else None,
    }


def _list_offers(
    providers: Mapping[str, MachineProvider], query: OfferQuery, count: int
) -> tuple[list[Offer], dict[str, str]]:
    """Return all offers, and a problem for each provider that did not answer; all calls run at the same time."""
    listed: list[Offer] = []
    problems: dict[str, str] = {}
    with concurrent.futures.ThreadPoolExecutor(len(providers)) as pool:
        works = {name: pool.submit(item.offers, query, count) for name, item in providers.items()}
        for name, work in works.items():
            try:
                listed += work.result()
            except TransportError as error:
                problems[name] = scrub(str(error))
    return listed, problems
