# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Offers of providers as values: offers, the filter a user writes, and the order that is placed.

Prices are US dollars per hour for one unit of the offer; memory and disk are GiB; unknown is None, never 0.
"""

from __future__ import annotations

import dataclasses
import re
import typing as t

from . import validators as f
from .errors import InputError
from .quantity import parse_finite

OfferKind = t.Literal["vm", "container", "baremetal"]
OfferUnit = t.Literal["machine", "cluster"]
KINDS: tuple[str, ...] = t.get_args(OfferKind)
UNITS: tuple[str, ...] = t.get_args(OfferUnit)

_NOISE = {"nvidia", "geforce", "tesla", "gb", "gib"}


@dataclasses.dataclass(frozen=True, slots=True)
class Hardware:
    """The hardware of one machine: as ordered, as listed, or as the machine itself shows; unknown is None."""

    gpu_model: str | None = None
    gpu_count: int | None = None
    gpu_memory_gib: float | None = None
    memory_gib: float | None = None

    @classmethod
    def of_record(cls, record: t.Mapping[str, t.Any]) -> Hardware:
        """Return the hardware in a node record; an empty record knows nothing."""
        gpu = record.get("gpu") or {}
        return cls(gpu.get("model"), gpu.get("count"), gpu.get("memory_gib"), record.get("memory_gib"))

    @classmethod
    def of_values(cls, values: t.Mapping[str, t.Any]) -> Hardware:
        """Return hardware from what :meth:`to_values` gave; a value of another type is unknown."""
        model, count = values.get("gpu_model"), values.get("gpu_count")
        return cls(
            model if isinstance(model, str) else None,
            count if isinstance(count, int) else None,
            *(parse_finite(values.get(name), minimum=0) for name in ("gpu_memory_gib", "memory_gib")),
        )

    def to_values(self) -> dict[str, t.Any]:
        """Return what is known, as JSON types."""
        return {name: value for name, value in dataclasses.asdict(self).items() if value is not None}


@dataclasses.dataclass(frozen=True, slots=True)
class Offer:
    """One thing a provider sells now.

    ``product`` is the provider's own word (instance type, GPU id, offer id). ``unit`` cluster means that one order
    yields several machines. ``stock`` is how many orders the offer can take (None: not limited as far as known).
    ``available`` is what the provider advertises; it is advice, an order may still be refused. ``ref`` holds the
    provider's own keys that its order needs.
    """

    provider: str
    product: str
    region: str | None
    kind: OfferKind
    price_usd_per_hour: float
    gpu_model: str | None = None
    gpu_count: int = 0
    gpu_memory_gib: float | None = None
    cpu_count: int | None = None
    cpu_arch: str | None = None
    memory_gib: float | None = None
    disk_gib: float | None = None
    unit: OfferUnit = "machine"
    available: bool | None = None
    stock: int | None = None
    k3s_capable: bool = False
    network_types: tuple[str, ...] = ()
    host: str | None = None
    ref: t.Mapping[str, str | int | bool | None] = dataclasses.field(default_factory=dict)

    @property
    def key(self) -> str:
        """Return what tells this offer from others in one listing."""
        return "/".join((self.provider, self.unit, self.product, self.region or "-", self.host or "-"))

    @property
    def price_per_gpu_hour(self) -> float:
        """Return dollars per GPU and hour; for a machine without GPU, per machine."""
        return self.price_usd_per_hour / max(1, self.gpu_count)

    @property
    def hardware(self) -> Hardware:
        """Return what one machine of the offer has."""
        return Hardware(self.gpu_model, self.gpu_count, self.gpu_memory_gib, self.memory_gib)

    def to_dict(self) -> dict[str, t.Any]:
        """Return the public form of the offer (a result of ``node_offer_info``)."""
        record = {field.name: getattr(self, field.name) for field in dataclasses.fields(self) if field.name != "ref"}
        return {**record, "network_types": list(self.network_types), "price_usd_per_gpu_hour": self.price_per_gpu_hour}


@dataclasses.dataclass(frozen=True, slots=True)
class OfferQuery:
    """What a user asks for. Every field that is set must hold; ``gpu_count`` is per machine and exact."""

    provider: str | None = f.field(f.text, None)
    product: str | None = f.field(f.text, None)
    regions: tuple[str, ...] = f.field(f.list_of(f.text), ())
    kind: str | None = f.field(f.choice(*KINDS), None)
    unit: str = f.field(f.choice(*UNITS), "machine")
    gpu_model: str | None = f.field(f.text, None)
    gpu_count: int | None = f.field(f.integer(0, 64), None)
    gpu_memory_gib_min: float | None = f.field(f.decimal(0), None)
    memory_gib_min: float | None = f.field(f.decimal(0), None)
    max_price_usd_per_hour: float | None = f.field(f.decimal(0), None)
    k3s_capable: bool | None = f.field(f.boolean, None)
    network_types: tuple[str, ...] = f.field(f.list_of(f.choice("mesh", "lan", "public")), ())


@dataclasses.dataclass(frozen=True, slots=True)
class Candidate(OfferQuery):
    """One entry of a pool's ``candidates``: where to look, in the user's order, and how to start a machine there.

    ``image`` is the provider's own image name, family or id; ``disk_gib`` applies where the provider sells disk apart.
    """

    image: str | None = f.field(f.text, None)
    disk_gib: int | None = f.field(f.integer(1, 65536), None)
    ports: tuple[str, ...] = f.field(f.list_of(f.text), ())


@dataclasses.dataclass(frozen=True, slots=True)
class Order:
    """One create call. ``name`` ends in the lease's token; ``count`` is machines wanted in a unit cluster.

    ``user_data`` may hold credentials: it is sent, never stored, and not part of the value's text.
    """

    token: str
    name: str
    offer: Offer
    cluster: str
    pool: str
    count: int = 1
    image: str | None = None
    disk_gib: int | None = None
    ports: tuple[str, ...] = ()
    ssh_public_key: str | None = None
    user_data: str | None = dataclasses.field(default=None, repr=False)
    deadline: str | None = None


def model_words(text: str) -> tuple[str, ...]:
    """Return the words of a GPU model's name in order, without maker and unit: ``("h100", "80gb", "hbm3")``."""
    return tuple(word for word in re.split(r"[^a-z0-9]+", text.lower()) if word and word not in _NOISE)


def is_same_model(wanted: str, offered: str | None) -> bool:
    """Return whether the offered name holds every word of ``wanted``; ``RTX4090`` and ``RTX 4090`` are the same."""
    words, names = model_words(wanted), model_words(offered or "")
    joined = {first + second for first, second in zip(names, names[1:], strict=False)}
    return bool(words) and (set(words) <= set(names) or "".join(words) in joined | set(names))


def gpu_family(name: str | None) -> str | None:
    """Return the part of a GPU's name by which its maker numbers it: ``h100``, ``l40``, ``4090``; None without one."""
    for word in model_words(name or ""):
        match = re.match(r"(?:rtx|gtx)?([a-z]*[0-9]+)", word)
        if match:
            return match[1]
    return None


# A product of 24 GB shows 22.5 GiB, a virtual machine some per cent less memory than it was sold with.
_SOLD_SHARE = 0.85


def sold_problems(ordered: Hardware, shown: Hardware) -> list[str]:
    """Return how a machine falls short of its order. Values that either side does not know are not compared."""
    problems = []
    if ordered.gpu_count is not None and shown.gpu_count is not None and shown.gpu_count < ordered.gpu_count:
        problems.append(f"has {shown.gpu_count} GPUs, {ordered.gpu_count} were ordered")
    families = gpu_family(ordered.gpu_model), gpu_family(shown.gpu_model)
    if ordered.gpu_count != 0 and shown.gpu_count != 0 and None not in families and families[0] != families[1]:
        problems.append(f"has {shown.gpu_model}, {ordered.gpu_model} was ordered")
    sizes = (
        ("GiB of memory per GPU", ordered.gpu_memory_gib, shown.gpu_memory_gib),
        ("GiB of memory", ordered.memory_gib, shown.memory_gib),
    )
    for unit, wanted, size in sizes:
        if wanted is not None and size is not None and size < wanted * _SOLD_SHARE:
            problems.append(f"has {size:.0f} {unit}, {wanted:.0f} were ordered")
    return problems


def matches(query: OfferQuery, offer: Offer) -> bool:
    """Return whether an offer satisfies the query; an unknown value never satisfies a minimum."""
    equal = (
        (query.provider, offer.provider),
        (query.product, offer.product),
        (query.kind, offer.kind),
        (query.unit, offer.unit),
        (query.gpu_count, offer.gpu_count),
        (query.k3s_capable, offer.k3s_capable),
    )
    at_least = (
        (query.gpu_memory_gib_min, offer.gpu_memory_gib),
        (query.memory_gib_min, offer.memory_gib),
    )
    return (
        all(wanted is None or wanted == offered for wanted, offered in equal)
        and all(wanted is None or (offered is not None and offered >= wanted) for wanted, offered in at_least)
        and (query.gpu_model is None or is_same_model(query.gpu_model, offer.gpu_model))
        and (not query.regions or offer.region in query.regions)
        and set(query.network_types) <= set(offer.network_types)
        and (query.max_price_usd_per_hour is None or offer.price_usd_per_hour <= query.max_price_usd_per_hour)
    )


def sort_by_price(offers: t.Iterable[Offer]) -> tuple[Offer, ...]:
    """Return offers sorted by price per GPU-hour; those advertised as sold out come last."""
    return tuple(sorted(offers, key=lambda item: (item.available is False, item.price_per_gpu_hour, item.key)))


def parse_candidates(value: t.Any, providers: t.Collection[str], path: str = "candidates") -> tuple[Candidate, ...]:
    """Return the candidates of a pool; all must be machines, or all clusters, and each must name its provider."""
    candidates = f.list_of(f.section(Candidate))(value, path)
    if not candidates:
        raise InputError(path, "must name at least one provider")
    for index, candidate in enumerate(candidates):
        if candidate.provider is None:
            raise InputError(f"{path}[{index}].provider", "is required", f"One of {', '.join(providers)}")
        f.choice(*providers)(candidate.provider, f"{path}[{index}].provider")
    if len({candidate.unit for candidate in candidates}) > 1:
        raise InputError(path, "must all be machines or all be clusters", "Create two pools")
    return candidates
