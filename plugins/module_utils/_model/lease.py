# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rented machines as values: names and tokens, instances, results of a create call, proof of deletion.

The token ties a lease in the ledger to a machine: 8 hexadecimal digits at the end of the name of everything that the
collection rents, because no provider has idempotency keys, and an id is lost with the response that carries it.
"""

from __future__ import annotations

import dataclasses
import re
import typing as t

from . import validators as f
from .errors import InputError

Resource = t.Literal["instance", "cluster", "volume", "device", "auth_key", "k3s_token"]
InstanceState = t.Literal["creating", "running", "stopped", "offline", "failed", "gone", "unknown"]
ProofKind = t.Literal["ended", "never_seen_to_end", "never_made"]
RefusalKind = t.Literal["capacity", "throttled", "rule", "quota", "credentials"]

CLUSTER_LIMIT = 24
POOL_LIMIT = 16
_POOL = re.compile(r"[a-z][a-z0-9]*\Z")
_HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9.:_-]{0,254}\Z")
_USER = re.compile(r"[a-z_][a-z0-9_-]{0,31}\Z")
# A cluster's members have the cluster's name with a number after it.
_NAME = re.compile(
    r"(?P<cluster>[a-z0-9-]+)-(?P<pool>[a-z0-9]+)-(?P<index>[0-9]{1,4})-(?P<token>[0-9a-f]{8})(-[0-9]+)?\Z"
)


@dataclasses.dataclass(frozen=True, slots=True)
class InstanceName:
    """The parts of a rented name, such as ``lab-h100-0-1f2e3d4c``; ``index`` counts within the pool."""

    cluster: str
    pool: str
    index: int
    token: str

    def __str__(self) -> str:
        return f"{self.cluster}-{self.pool}-{self.index}-{self.token}"


def parse_instance_name(name: str | None) -> InstanceName | None:
    """Return the parts of a name that the collection gave, or None for any other name."""
    match = _NAME.match((name or "").split(".")[0])
    if not match:
        return None
    return InstanceName(match["cluster"], match["pool"], int(match["index"]), match["token"])


def parse_cluster_name(value: t.Any, path: str = "cluster") -> str:
    """Return a cluster name that fits into every provider's name limit (64 and a host name of 63)."""
    return f.name(CLUSTER_LIMIT)(value, path)


def parse_pool_name(value: t.Any, path: str = "pool") -> str:
    """Return a pool name. It has no dash, so that the name of an instance splits into its parts in one way only."""
    label = f.text(value, path)
    if len(label) > POOL_LIMIT or not _POOL.match(label):
        raise InputError(path, f"must be at most {POOL_LIMIT} lower-case letters and digits and start with a letter")
    return label


@dataclasses.dataclass(frozen=True, slots=True)
class AccountIdentity:
    """An account at a provider. ``name`` is the user's name for it, else its fingerprint.

    ``fingerprint`` tells one credential from another: a name stays the same when the credential is another account's.
    ``api`` is the address of the API: behind another one is another world.
    """

    name: str
    fingerprint: str
    api: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class SshEndpoint:
    """The address, port and user of a machine's SSH server."""

    host: str
    port: int
    user: str

    @property
    def is_plain(self) -> bool:
        """Return whether address and user are such: other text of a provider could be an option of ssh."""
        return bool(_HOST.match(self.host) and _USER.match(self.user))


@dataclasses.dataclass(frozen=True, slots=True)
class Instance:
    """A machine, cluster, device or key as its provider lists it now.

    ``state`` is the collection's word, ``detail`` the provider's. ``terminal``: the instance never becomes usable.
    ``host`` names the physical machine where the provider reports it. ``record`` is the node record; ``members`` are
    the machines of a cluster.
    """

    provider: str
    id: str
    name: str
    token: str | None
    state: InstanceState
    resource: Resource = "instance"
    detail: str = ""
    terminal: bool = False
    region: str | None = None
    price_usd_per_hour: float | None = None
    ssh: SshEndpoint | None = None
    host: str | None = None
    record: t.Mapping[str, t.Any] = dataclasses.field(default_factory=dict)
    members: tuple[Instance, ...] = ()

    def resource_fits(self, resource: Resource) -> bool:
        """Return whether a lease of ``resource`` may be for this: a cluster's lease includes its machines."""
        return self.resource == resource or {self.resource, resource} == {"instance", "cluster"}

    def carries(self, cluster: str, token: str) -> bool:
        """Return whether ``cluster`` rented this under ``token``: a foreign name may end in the same digits."""
        parts = parse_instance_name(self.name)
        return self.token == token and (parts is None or parts.cluster == cluster)

    @property
    def is_nameless(self) -> bool:
        """Return whether the listing shows no name at all: then an id is the only tie to a lease."""
        return self.token is None and self.name in ("", self.id)

    @property
    def machines(self) -> tuple[Instance, ...]:
        """Return what can run a job: the members of a cluster, else the machine itself."""
        return self.members or (self,)


@dataclasses.dataclass(frozen=True, slots=True)
class Listing:
    """Everything that an account listed, ``age_s`` ago; the API's clock is ``clock_offset_s`` ahead of this one."""

    instances: tuple[Instance, ...]
    age_s: float = 0.0
    clock_offset_s: float | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class OrderAccepted:
    """The provider accepted the order. ``usable`` is false when it also reported an error."""

    id: str
    usable: bool = True
    reason: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class OrderRefused:
    """The provider did not accept the order. ``retry_after_s`` is the wait that it asked for, if any."""

    why: RefusalKind
    reason: str
    retry_after_s: float | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class OrderUnsettled:
    """There was no usable response: the order may have been accepted, or may be later. Only a listing can tell."""

    reason: str


OrderResult: t.TypeAlias = "OrderAccepted | OrderRefused | OrderUnsettled"


@dataclasses.dataclass(frozen=True, slots=True)
class Leftover:
    """A resource that outlives its machine and may bill. ``usd_per_hour`` is None where no API has it."""

    resource: str
    provider: str
    id: str
    name: str
    usd_per_hour: float | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class ProviderTraits:
    """The timing of a provider's API, in seconds.

    ``create_interval_s``: shortest time between two creates. ``poll_interval_s``: time between two listings.
    ``list_lag_s``: how long a listing may miss a machine that exists. ``settle_s``: how long after a create call
    without an answer its effect may still appear. ``boot_limit_s``: from create to usable. A provider that
    ``keeps_deadline`` ends a machine itself, when its order said.
    """

    create_interval_s: float = 0.0
    poll_interval_s: float = 5.0
    list_lag_s: float = 60.0
    settle_s: float = 150.0
    boot_limit_s: float = 1200.0
    keeps_deadline: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class LeaseProof:
    """One lease whose machine no longer exists: absent from its account's listing at two times (ISO 8601, UTC).

    ``name`` is its name at the provider and in its cluster. ``how``: the provider accepted a delete of it, it is not in
    its account and was never seen to end, or its order never took effect.
    """

    token: str
    name: str
    id: str | None
    account: str
    absent_at: tuple[str, str]
    how: ProofKind = "ended"


@dataclasses.dataclass(frozen=True, slots=True)
class TeardownProof:
    """The content of ``teardown.json``.

    ``billing`` lists what is not proved gone and may bill beyond its lease, ``within_lease`` the machines that may run
    on; the price of one that is not listed is not known. ``notes`` are what else is to be said.
    """

    leases: tuple[LeaseProof, ...] = ()
    leftovers: tuple[Leftover, ...] = ()
    residual_usd_per_hour: float | None = 0.0
    unknown: tuple[tuple[str, str], ...] = ()
    hygiene: tuple[t.Mapping[str, t.Any], ...] = ()
    billing: tuple[t.Mapping[str, t.Any], ...] = ()
    orphans: tuple[t.Mapping[str, t.Any], ...] = ()
    within_lease: tuple[t.Mapping[str, t.Any], ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def clean(self) -> bool:
        """Return whether no resource of the collection bills beyond its lease."""
        return not (self.billing or self.orphans or self.leftovers)

    def describe_remaining(self) -> list[str]:
        """Return a line for each thing that may bill beyond its lease."""
        lines = []
        for item in self.billing:
            ids = ", ".join(item.get("ids") or []) or "no id known"
            lines.append(f"{item.get('name') or item['provider']} ({ids}): {item['problem']}")
        if self.orphans:
            names = ", ".join(f"{item['name']} ({item['id']} at {item['provider']})" for item in self.orphans)
            advice = "Restore the ledger, or delete them with reap -e muster_reap_orphans=delete"
            lines.append(f"orphans, which no order in this ledger is of: {names}. {advice}")
        lines += [f"left over: {item.resource} {item.name} ({item.id} at {item.provider})" for item in self.leftovers]
        return lines

    def to_dict(self) -> dict[str, t.Any]:
        """Return the JSON form."""
        return {
            "schema": 1,
            "leases": [{**dataclasses.asdict(item), "absent_at": list(item.absent_at)} for item in self.leases],
            "leftovers": [dataclasses.asdict(item) for item in self.leftovers],
            "residual_usd_per_hour": self.residual_usd_per_hour,
            "unknown": [{"id": key, "name": name} for key, name in self.unknown],
            "hygiene": [dict(item) for item in self.hygiene],
            "billing": [dict(item) for item in self.billing],
            "orphans": [dict(item) for item in self.orphans],
            "within_lease": [dict(item) for item in self.within_lease],
            "notes": list(self.notes),
        }
