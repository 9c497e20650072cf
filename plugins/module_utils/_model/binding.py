# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The binding: what a service leaves for its users, the same whether it was deployed or was there before."""

from __future__ import annotations

import dataclasses
import typing as t

from . import validators as f
from .cluster_id import is_other_cluster
from .errors import InputError, RefusedError
from .shared_filesystem import Filesystem
from .wording import name_some

COMPONENTS: t.Final = ("object_store", "shared_filesystem", "secrets", "tracking", "registry", "monitoring")
MODES: t.Final = ("none", "bind", "deploy")
PURPOSES: t.Final = ("datasets", "checkpoints", "artifacts", "images", "files")
# The services that hold secrets, as references to secrets name them.
SECRET_PROVIDERS: t.Final = ("vault", "openbao", "aws_secrets_manager", "infisical")
SECRET_SERVICES: t.Final = (*SECRET_PROVIDERS, "kubernetes")
NAME_LIMIT: t.Final = 40
SCHEMA: t.Final = 1
Vantage = t.Literal["host", "pod"]


@dataclasses.dataclass(frozen=True, slots=True)
class SecretPointer:
    """Where the credentials of a service are, never what they are.

    ``keys``: what the service calls a value (``access_key``) and the variable or key that holds it.
    """

    source: str = f.field(f.choice("env", "file", *SECRET_SERVICES), key="from")
    path: str | None = f.field(f.text, None)
    keys: dict[str, str] = f.field(f.dictionary, {})


@dataclasses.dataclass(frozen=True, slots=True)
class BindingResource:
    """A part of a service and its purpose. ``ref`` is ``BUCKET`` or ``BUCKET/PREFIX``, of a registry a repository."""

    purpose: str = f.field(f.choice(*PURPOSES))
    ref: str = f.field(f.text)
    type: str = f.field(f.choice("bucket", "export", "claim", "repository"), "bucket")


@dataclasses.dataclass(frozen=True, slots=True)
class Reachability:
    """What one node saw of the service from one vantage point; unknown is null.

    ``cluster_id``: of the cluster whose pod it was. A node of this name in another cluster saw nothing.
    """

    node: str = f.field(f.text)
    vantage: str = f.field(f.choice("host", "pod"))
    ok: bool = f.field(f.boolean)
    latency_ms: float | None = f.field(f.decimal(0), None)
    mb_per_s: float | None = f.field(f.decimal(0), None)
    problem: str | None = f.field(f.text, None)
    fix: str | None = f.field(f.text, None)
    cluster_id: str | None = f.field(f.text, None)

    def describe(self) -> str:
        """Return this row of the matrix for people."""
        speed = "" if self.mb_per_s is None else f", {self.mb_per_s:.0f} MB/s"
        latency = "" if self.latency_ms is None else f" {self.latency_ms:.0f} ms"
        state = f"ok{latency}{speed}" if self.ok else str(self.problem or "failed")
        return f"{self.node} ({self.vantage}): {state}"


@dataclasses.dataclass(frozen=True, slots=True)
class Binding:
    """A service as its users know it. ``addressing``: how a bucket is named in an S3 address.

    ``hosts``: the names of registries in names of images that are pulled from this one; its own without any.
    """

    name: str = f.field(f.name(NAME_LIMIT))
    component: str = f.field(f.choice(*COMPONENTS))
    mode: str = f.field(f.choice("bind", "deploy"))
    endpoint: str = f.field(f.text)
    provider: str | None = f.field(f.text, None)
    site: str | None = f.field(f.text, None)
    resources: tuple[BindingResource, ...] = f.field(f.list_of(f.section(BindingResource)), ())
    access_modes: tuple[str, ...] = f.field(f.list_of(f.choice("read", "write")), ("read", "write"))
    addressing: str = f.field(f.choice("path", "virtual"), "path")
    region: str | None = f.field(f.text, None)
    ca: str | None = f.field(f.pem, None)
    secret_ref: SecretPointer | None = f.field(f.section(SecretPointer), None)
    env: dict[str, str] = f.field(f.environment, {})
    hosts: tuple[str, ...] = f.field(f.list_of(f.text), ())
    filesystem: Filesystem | None = f.field(f.section(Filesystem), None)
    reachable_from: tuple[Reachability, ...] = f.field(f.list_of(f.section(Reachability)), ())
    checked_at: str | None = f.field(f.text, None)
    schema: int = f.field(f.integer(SCHEMA, SCHEMA), SCHEMA)

    @classmethod
    def from_dict(cls, value: t.Any, path: str = "binding") -> Binding:
        """Return the binding in ``value``.

        :raises InputError: naming the field, the problem and the nearest valid key.
        """
        return f.section(cls)(value, path)

    def to_dict(self) -> dict[str, t.Any]:
        """Return the binding as JSON types, with the keys of the file."""
        return t.cast("dict[str, t.Any]", f.plain_value(self))

    def find_resource(self, purpose: str) -> BindingResource | None:
        """Return the part of the service that is for ``purpose``, None without one."""
        return next((item for item in self.resources if item.purpose == purpose), None)

    def is_same_service(self, other: Binding) -> bool:
        """Return whether two bindings differ in nothing but what checks saw."""
        mine, others = (dataclasses.replace(item, reachable_from=(), checked_at=None) for item in (self, other))
        return mine == others


def describe_matrix(rows: t.Sequence[Reachability], limit: int = 12) -> str:
    """Return a reachability matrix in one line, what failed first."""
    ordered = sorted(rows, key=lambda row: (row.ok, row.node, row.vantage))
    return name_some([row.describe() for row in ordered], limit, "; ")


def require_reachable(
    binding: Binding, nodes: t.Sequence[str] | None, vantage: Vantage, option: str, cluster_id: str = ""
) -> None:
    """Refuse a binding that one of ``nodes`` cannot use, with the matrix of these nodes.

    :param nodes: None where it is not known which they will be: then one that can use it is enough.
    :param cluster_id: of the cluster of these nodes, where they have pods.
    :raises RefusedError: also for a node that it was never checked from.
    """
    rows = {
        row.node: row
        for row in binding.reachable_from
        if row.vantage == vantage and not is_other_cluster(row.cluster_id, cluster_id)
    }
    if nodes is None:
        nodes = [] if any(row.ok for row in rows.values()) else list(rows) or [f"any {vantage}"]
    unknown = Reachability("", vantage, False, problem="not checked")
    wanted = [rows.get(node) or dataclasses.replace(unknown, node=node) for node in nodes]
    failed = [row for row in wanted if not row.ok]
    if not failed:
        return
    unchecked = [row.node for row in failed if row.node not in rows]
    fix = failed[0].fix or ""
    if unchecked:
        fix = f"Check it from {', '.join(unchecked[:5])} with the services playbook"
        fix += " and muster_services_pods" if vantage == "pod" else ""
    raise RefusedError(f"{option}: '{binding.name}' is not reachable from all nodes: {describe_matrix(wanted)}", fix)


def require_resource(binding: Binding, component: str, purpose: str, option: str) -> BindingResource:
    """Return the part of ``binding`` that is for ``purpose``.

    :raises InputError: when the service is of another kind, or has no such part.
    """
    if binding.component != component:
        fix = "Name it in job.mounts, and a path below it" if binding.component == "shared_filesystem" else ""
        raise InputError(option, f"'{binding.name}' is a binding of {binding.component}, not of {component}", fix)
    found = binding.find_resource(purpose)
    if found is None:
        has = ", ".join(sorted({item.purpose for item in binding.resources})) or "none"
        raise InputError(
            option,
            f"'{binding.name}' has no bucket for {purpose} (it has: {has})",
            f"Add {{purpose: {purpose}, ref: BUCKET}} to its resources in muster_services",
        )
    return found
