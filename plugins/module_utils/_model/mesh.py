# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The mesh (a tailnet) of one machine: what it has, what it shall have, and what differs.

Preferences have the names of ``tailscale debug prefs`` (ipn.Prefs). Only those that were asked for are compared:
a machine that its owner has put into the tailnet keeps all others.
"""

from __future__ import annotations

import dataclasses
import typing as t

from .errors import InputError, NodeError

DEFAULT_SERVER = "https://controlplane.tailscale.com"
# Of a preference: the option of ``tailscale set`` that changes it.
_FLAGS: t.Final[t.Mapping[str, str]] = {
    "Hostname": "hostname",
    "CorpDNS": "accept-dns",
    "RouteAll": "accept-routes",
    "AdvertiseRoutes": "advertise-routes",
    "RunSSH": "ssh",
}
_ARCHITECTURES: t.Final = {"x86_64": "amd64", "aarch64": "arm64"}

Prefs = t.Mapping[str, t.Any]


@dataclasses.dataclass(frozen=True, slots=True)
class MeshSettings:
    """What a machine shall have. None leaves a preference as it is; ``login_server`` empty: whichever it is in."""

    login_server: str = ""
    hostname: str | None = None
    accept_dns: bool | None = None
    accept_routes: bool | None = None
    advertise_routes: tuple[str, ...] | None = None
    ssh: bool | None = None
    userspace: bool = False

    def prefs(self) -> dict[str, t.Any]:
        """Return the preferences that were asked for."""
        routes = None if self.advertise_routes is None else sorted(self.advertise_routes)
        asked = {
            "Hostname": self.hostname,
            "CorpDNS": self.accept_dns,
            "RouteAll": self.accept_routes,
            "AdvertiseRoutes": routes,
            "RunSSH": self.ssh,
        }
        return {name: value for name, value in asked.items() if value is not None}


@dataclasses.dataclass(frozen=True, slots=True)
class MeshState:
    """What a machine has. ``backend`` is tailscale's word for its state, empty where tailscaled does not answer.

    ``record`` is what this collection made there, None where nothing was. ``program`` is the path of tailscale.
    """

    architecture: str
    root: bool
    systemd: bool
    tun: bool
    program: str
    active: bool
    backend: str
    prefs: Prefs
    addresses: tuple[str, ...]
    record: t.Mapping[str, t.Any] | None
    intact: bool

    @classmethod
    def from_dict(cls, values: t.Mapping[str, t.Any]) -> MeshState:
        """Return the state from a machine's answer."""
        return cls(
            architecture=str(values.get("architecture") or ""),
            root=values.get("root") is True,
            systemd=values.get("systemd") is True,
            tun=values.get("tun") is True,
            program=str(values.get("program") or ""),
            active=values.get("active") is True,
            backend=str(values.get("backend") or ""),
            prefs=values.get("prefs") or {},
            addresses=tuple(str(item) for item in values.get("addresses") or ()),
            record=values.get("record"),
            intact=values.get("intact") is True,
        )

    @property
    def is_ours(self) -> bool:
        """Whether tailscale was installed by this collection."""
        return bool(self.record and self.record.get("files"))

    @property
    def version(self) -> str:
        """The version that this collection installed, empty where it installed none."""
        return str(((self.record or {}).get("release") or {}).get("version") or "")

    @property
    def is_in_mesh(self) -> bool:
        """Whether the machine has joined a tailnet, connected now or not."""
        return self.backend in ("Running", "Starting", "Stopped")

    @property
    def login_server(self) -> str:
        """The control server of the tailnet that the machine is in."""
        return str(self.prefs.get("ControlURL") or DEFAULT_SERVER).rstrip("/")


@dataclasses.dataclass(frozen=True, slots=True)
class MeshPlan:
    """What is to be done on a machine, in this order; ``changes`` are preferences."""

    install: bool
    start: bool
    join: bool
    connect: bool
    changes: Prefs

    @property
    def has_changes(self) -> bool:
        """Whether anything is to be done."""
        return bool(self.install or self.start or self.join or self.connect or self.changes)

    def summary(self) -> list[str]:
        """Return what is to be done, for people."""
        steps = {"install": self.install, "start": self.start, "join": self.join, "connect": self.connect}
        return [
            *(name for name, needed in steps.items() if needed),
            *(f"set --{flag}" for flag in to_flags(self.changes)),
        ]


def make_plan(state: MeshState, settings: MeshSettings, version: str) -> MeshPlan:
    """Return what differs between a machine and what it shall have.

    :param version: of Tailscale; one that the owner of the machine installed keeps its own.
    """
    install = not state.program or (state.is_ours and (not state.intact or state.version != version))
    return MeshPlan(
        install=install,
        start=not state.active,
        join=not state.is_in_mesh,
        connect=state.backend == "Stopped",
        changes=find_changes(state.prefs, settings.prefs()),
    )


def find_changes(present: Prefs, wanted: Prefs) -> dict[str, t.Any]:
    """Return the preferences that differ, with their new values; without tailscale all of them."""
    return {
        name: value
        for name, value in wanted.items()
        if name not in present or _to_comparable(present[name]) != _to_comparable(value)
    }


def to_flags(prefs: Prefs) -> list[str]:
    """Return options of ``tailscale set`` without their dashes: ``accept-dns=false``."""
    return [f"{_FLAGS[name]}={_to_text(value)}" for name, value in prefs.items() if name in _FLAGS]


def architecture_of(name: str, state: MeshState) -> str:
    """Return the architecture by which releases are named.

    :raises NodeError: for one without a release.
    """
    if state.architecture not in _ARCHITECTURES:
        raise NodeError(name, f"is a {state.architecture} machine", "Tailscale is installed on amd64 and arm64")
    return _ARCHITECTURES[state.architecture]


def refuse_machine(name: str, state: MeshState, settings: MeshSettings, plan: MeshPlan) -> None:
    """Refuse a machine that cannot be brought into the mesh, before anything is done.

    :raises NodeError: saying why.
    """
    if not state.root:
        raise NodeError(name, "is not managed as root", "Set ansible_become: true")
    if (plan.install or plan.start) and not state.systemd:
        raise NodeError(name, "does not run systemd, so tailscaled cannot be kept running", "Leave it out of the mesh")
    if plan.install and not state.tun and not settings.userspace:
        raise NodeError(
            name,
            "has no /dev/net/tun, which a mesh interface needs",
            "Set mesh_userspace: true for SSH and control only: NCCL, Gloo and MPI cannot use it",
        )
    asked = settings.login_server.rstrip("/")
    if state.is_in_mesh and asked and state.login_server != asked:
        raise NodeError(
            name,
            f"is in the tailnet of {state.login_server}, not of {asked}",
            "Leave that one yourself (tailscale logout), or set mesh_login_server to it",
        )


def require_key(name: str, plan: MeshPlan, has_key: bool) -> None:
    """Refuse to join without a key.

    :raises InputError: naming the option.
    """
    if plan.join and not has_key:
        raise InputError(
            "auth_key_file",
            f"{name} is not in the mesh and has no key to join with",
            "Set mesh_tags or mesh_auth_key_file",
        )


def _to_comparable(value: t.Any) -> t.Any:
    """Return a value for comparing: the order of routes says nothing, and without any there is null or a list."""
    return (sorted(value) or None) if isinstance(value, (list, tuple)) else value


def _to_text(value: t.Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return ",".join(value) if isinstance(value, (list, tuple)) else str(value or "")
