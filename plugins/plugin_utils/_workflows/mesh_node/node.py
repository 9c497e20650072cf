# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One machine in a tailnet: what it has is read, Tailscale is installed where it is missing, it joins or leaves."""

from __future__ import annotations

import dataclasses
import hashlib
import pathlib
import typing as t

from ....module_utils._model import mesh, validators
from ....module_utils._model.errors import InputError, RefusedError
from ....module_utils._secrets.secret import Secret
from ..._hosts import downloads
from ..._hosts.node_client import NodeClient
from ..shared.digest_lock import DigestLock, find_lock
from ..shared.release_files import find_file, send_files

Result = dict[str, t.Any]
_ARCHIVE = "/var/lib/muster/tailscale.tgz"
_PROGRAMS: t.Final = {"tailscale": "/usr/local/bin/tailscale", "tailscaled": "/usr/local/sbin/tailscaled"}
_UNIT_FILE = "/etc/systemd/system/tailscaled.service"
_UNIT = """# Written by muster.training; changes are overwritten.
[Unit]
Description=Tailscale node agent
Documentation=https://tailscale.com/docs
Wants=network-pre.target
After=network-pre.target NetworkManager.service systemd-resolved.service

[Service]
Type=notify
RuntimeDirectory=tailscale
StateDirectory=tailscale
StateDirectoryMode=0700
ExecStart=/usr/local/sbin/tailscaled --state=/var/lib/tailscale/tailscaled.state --port={port}{tun}
ExecStopPost=/usr/local/sbin/tailscaled --cleanup
Restart=on-failure

[Install]
WantedBy=multi-user.target
"""


@dataclasses.dataclass(frozen=True, slots=True)
class MeshOrder:
    """What one machine shall be. ``address``: the one by which the controller reaches it.

    ``node_name``: the name that it gets when it joins. ``peers``: machines of the mesh to which the path is read.
    """

    settings: mesh.MeshSettings
    lock: DigestLock
    base: pathlib.Path
    address: str
    node_name: str
    version: str
    source: str = ""
    port: int = 41641
    key: Secret | None = None
    wait_s: int = 60
    peers: tuple[str, ...] = ()

    @property
    def unit_text(self) -> str:
        """The text of tailscaled's unit."""
        return _UNIT.format(port=self.port, tun=" --tun=userspace-networking" if self.settings.userspace else "")


def run(
    options: t.Mapping[str, t.Any],
    remote: NodeClient,
    address: str,
    sources: t.Sequence[str],
    base: pathlib.Path,
    check: bool,
) -> Result:
    """Return the result of ``mesh_node`` for the machine at ``address``."""
    order = read_order(options, remote.name, address, sources, base)
    work = ensure_absent if options["state"] == "absent" else ensure_present
    return work(remote, order, check)


def read_order(
    options: t.Mapping[str, t.Any], name: str, address: str, sources: t.Sequence[str], base: pathlib.Path
) -> MeshOrder:
    """Return the order that the options describe.

    :raises InputError: naming the option.
    """
    server = str(options.get("login_server") or "").rstrip("/")
    if server and not server.startswith(("https://", "http://")):
        raise InputError("login_server", f"'{server}' is not a URL", "Write https:// before the name of the server")
    routes = options.get("advertise_routes")
    settings = mesh.MeshSettings(
        login_server=server,
        hostname=options.get("hostname"),
        accept_dns=options.get("accept_dns"),
        accept_routes=options.get("accept_routes"),
        advertise_routes=None
        if routes is None
        else tuple(validators.list_of(validators.text)(routes, "advertise_routes")),
        ssh=options.get("ssh"),
        userspace=options["userspace"] is True,
    )
    return MeshOrder(
        settings=settings,
        lock=find_lock(sources, base, options.get("lock_file")),
        base=base,
        address=address,
        node_name=str(options.get("node_name") or name),
        version=str(options.get("version") or downloads.default_version("tailscale")),
        source=str(options.get("source") or ""),
        port=validators.integer(0, 65535)(options["port"], "port"),
        key=_read_key(options.get("auth_key_file"), base),
        wait_s=validators.integer(5, 600)(options["wait_s"], "wait_s"),
        peers=tuple(validators.list_of(validators.text)(options.get("peers") or [], "peers")),
    )


def ensure_present(remote: NodeClient, order: MeshOrder, check: bool) -> Result:
    """Install, start, set and join, each only where it differs."""
    answer = _read_state(remote, order)
    state = mesh.MeshState.from_dict(answer)
    settings = order.settings
    if settings.hostname is None and not state.is_in_mesh:
        settings = dataclasses.replace(settings, hostname=order.node_name)
    plan = mesh.make_plan(state, settings, order.version)
    mesh.refuse_machine(remote.name, state, settings, plan)
    result: Result = {"changed": plan.has_changes, "steps": plan.summary(), **_describe(answer)}
    if state.is_ours and plan.install:
        # Programs that were changed say nothing of the rest: it is looked at with the right ones.
        if check:
            return {**result, "steps": ["install"], "joined": state.is_in_mesh}
        _install(remote, order, state)
        again = ensure_present(remote, order, check)
        return {**again, "changed": True, "steps": ["install", *again["steps"]]}
    if check:
        return {**result, "joined": state.is_in_mesh}
    mesh.require_key(remote.name, plan, order.key is not None)
    if plan.install:
        _install(remote, order, state)
    _carry_out(remote, order, state, plan)
    if plan.has_changes:
        result |= _describe(_read_state(remote, order))
    return {**result, "joined": True}


def _carry_out(remote: NodeClient, order: MeshOrder, state: mesh.MeshState, plan: mesh.MeshPlan) -> None:
    """Send what the plan asks for of a machine that has the programs."""
    if plan.start:
        remote.call("mesh", step="start")
    if plan.changes:
        former = {name: state.prefs.get(name) for name in plan.changes}
        remote.call("mesh", step="set", flags=mesh.to_flags(plan.changes), former=former)
    if plan.join and order.key is not None:
        server = order.settings.login_server or mesh.DEFAULT_SERVER
        # Again: the first "tailscale up" of a machine forgets what was set before it.
        flags = mesh.to_flags(plan.changes)
        remote.call("mesh", step="join", key=order.key.reveal(), login_server=server, wait_s=order.wait_s, flags=flags)
    if plan.connect:
        remote.call("mesh", step="connect", wait_s=order.wait_s)


def ensure_absent(remote: NodeClient, order: MeshOrder, check: bool) -> Result:
    """Leave the tailnet that was joined for the cluster, restore preferences, remove what was installed."""
    answer = _read_state(remote, order)
    state = mesh.MeshState.from_dict(answer)
    if state.record is None:
        return {"changed": False, "steps": [], "joined": state.is_in_mesh, **_describe(answer)}
    leaves = bool(state.record.get("joined") or state.record.get("files"))
    name = str(answer.get("name"))
    if leaves and order.address in (*state.addresses, name, name.partition(".")[0]):
        raise RefusedError(
            f"{remote.name}: this connection runs over the mesh ({order.address}), which it would cut",
            "Set ansible_host to an address of the machine outside the mesh",
        )
    steps = [*(["leave"] if state.record.get("joined") else []), *(["uninstall"] if state.record.get("files") else [])]
    former = state.record.get("prefs", {})
    steps += [f"set --{flag}" for flag in mesh.to_flags(former)]
    if not check:
        remote.call("mesh", step="remove", flags=mesh.to_flags(former))
    return {
        "changed": True,
        "steps": steps,
        "joined": state.is_in_mesh and not leaves,
        **_describe({"names": answer.get("names")}),
    }


def _read_state(remote: NodeClient, order: MeshOrder) -> dict[str, t.Any]:
    digest = hashlib.sha256(order.unit_text.encode()).hexdigest()
    wanted = [{"path": _UNIT_FILE, "sha256": digest}, *({"path": path} for path in _PROGRAMS.values())]
    asked = {"peers": list(order.peers)} if order.peers else {}
    return remote.call("mesh", step="look", files=wanted, **asked)


def _install(remote: NodeClient, order: MeshOrder, state: mesh.MeshState) -> None:
    """Bring the programs and the unit; a tailscaled that is running is restarted with them."""
    download = downloads.find("tailscale", order.version, mesh.architecture_of(remote.name, state))
    item = find_file(download, _ARCHIVE, 0o600, order.source, order.base, order.lock, check=False)
    paths = [*_PROGRAMS.values(), _UNIT_FILE]
    (archive,) = send_files(remote, "mesh", order.lock, [item], {"paths": paths})
    placed = [
        {"path": path, "mode": 0o755, "sha256": archive["sha256"], "archive": _ARCHIVE, "member": name}
        for name, path in _PROGRAMS.items()
    ]
    unit = {"path": _UNIT_FILE, "mode": 0o644, "text": order.unit_text}
    release = {"version": order.version, "sha256": archive["sha256"]}
    remote.call("mesh", step="apply", files=[*placed, unit], release=release)


def _describe(answer: t.Mapping[str, t.Any]) -> Result:
    """Return what users read of a machine's state."""
    return {
        "addresses": answer.get("addresses") or [],
        "name": answer.get("name"),
        "device_id": answer.get("id"),
        "path": answer.get("path"),
        "names": answer.get("names") or [],
        "login_server": str((answer.get("prefs") or {}).get("ControlURL") or "") or None,
    }


def _read_key(place: str | None, base: pathlib.Path) -> Secret | None:
    if not place:
        return None
    path = base / pathlib.Path(place).expanduser()
    try:
        text = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as exc:
        raise InputError("auth_key_file", f"{path} cannot be read ({getattr(exc, 'strerror', 'not text')})") from None
    if not text:
        raise InputError("auth_key_file", f"{path} is empty", "Write a key of the tailnet into it")
    return Secret(text, "auth_key")
