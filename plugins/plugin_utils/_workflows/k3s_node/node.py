# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""K3s on one machine: what is there is read, what differs is sent, and the unit is started when that is asked for."""

from __future__ import annotations

import dataclasses
import hashlib
import pathlib
import typing as t
import urllib.parse

from ....module_utils._model import checks, cluster_checks
from ....module_utils._model.errors import InputError, NodeError, UnreachableError
from ....module_utils._model.k3s import K3sMember
from ....module_utils._secrets.secret import Secret
from ..._hosts import bundle, downloads, k3s_files
from ..._hosts.node_client import NodeClient
from ..shared.digest_lock import DigestLock
from ..shared.release_files import ReleaseFile, find_file, send_files
from ..shared.state_dir import StateHome
from . import access, tokens

Result = dict[str, t.Any]
_REMAINS: t.Final = (
    "K3s and all that it made stay on the machine: when it is started again, it joins again by itself. Run this "
    "command again then, or wipe the machine"
)


@dataclasses.dataclass(frozen=True, slots=True)
class NodeOrder:
    """What one machine shall be. ``source``: a URL or a folder of the controller instead of upstream's release.

    ``images``: archives of images by their file names in the release. ``token``: one that the user gave. ``runtime``:
    the default one of containers; ``auto`` is NVIDIA's where a GPU and that runtime are. ``addresses``: of all servers,
    by which machines of the cluster reach them, empty where not all are known; ``api_addresses``: by which the
    controller does. ``stays``: whether the cluster stays when this machine leaves. ``adopt``: whether it may take its
    name from another one.
    """

    settings: k3s_files.K3sSettings
    home: StateHome
    lock: DigestLock
    base: pathlib.Path
    version: str
    source: str = ""
    images: tuple[str, ...] = ()
    token: Secret | None = None
    token_ttl_s: int = 600
    api_address: str = ""
    wait_s: int = 300
    runtime: str = "auto"
    addresses: tuple[str, ...] = ()
    api_addresses: tuple[str, ...] = ()
    stays: bool = False
    adopt: bool = False

    def list_archives(self, architecture: str = "") -> list[str]:
        """Return the file names of the archives of images: those that were named, else those of a bundle."""
        folder = bundle.find_folder(self.source, self.base)
        if self.images or folder is None:
            return list(self.images)
        return [pathlib.PurePath(item.path).name for item in bundle.list_archives(folder, architecture)]


@dataclasses.dataclass(frozen=True, slots=True)
class NodePlan:
    """What differs on a machine: texts and files of the release to place, files to remove, whether it must join."""

    texts: tuple[k3s_files.NodeFile, ...]
    pieces: tuple[ReleaseFile, ...]
    obsolete: tuple[str, ...]
    started_with: str
    running: bool
    enabled: bool
    joins: bool

    @property
    def has_changes(self) -> bool:
        """Whether anything is to be done."""
        return bool(self.texts or self.pieces or self.obsolete or self.joins) or not (self.running and self.enabled)

    @property
    def paths(self) -> list[str]:
        """The paths that are to be placed."""
        return [*(item.path for item in self.pieces), *(item.path for item in self.texts)]

    def summary(self) -> list[str]:
        """Return the paths that change, for people."""
        return [*self.paths, *(f"-{path}" for path in self.obsolete)]


def ensure_present(remote: NodeClient, order: NodeOrder, server: NodeClient | None, check: bool) -> Result:
    """Place what a machine lacks. The unit is started by :func:`ensure_running`, which a handler calls."""
    facts, order, wanted = read_machine(remote, order)
    refuse_machine(remote.name, facts, order)
    is_agent = order.settings.role == "agent"
    if not is_agent and not order.settings.server:
        access.require_same_cluster(order.home, {remote.name: facts["authority"]}, adopt=order.adopt)
    plan = make_plan(facts, order, wanted, check)
    if is_agent and plan.joins and server is None:
        raise InputError("server", f"{remote.name} is an agent", "Name the host that is the server")
    if order.token is not None and server is not None and plan.joins:
        tokens.check_token(server, order.token)
    result: Result = {"changed": plan.has_changes, "files": plan.summary(), "joins": plan.joins}
    if check or not plan.has_changes:
        if not plan.has_changes and not is_agent:
            result["changed"] = _write_kubeconfig(order, facts["kubeconfig"], check)
        if server is not None and is_agent and not check:
            # Of a run that was ended after its agent had joined; without one nothing is asked.
            result["changed"] = bool(tokens.end_tokens(server, order.home, order.settings.node))
        return result
    unit = {"unit": order.settings.unit, "role": order.settings.role, "cluster": order.home.folder.name}
    begin = {"paths": plan.paths, **unit}
    placed = send_files(remote, "k3s", order.lock, plan.pieces, begin)
    texts = [{"path": item.path, "mode": item.mode, "text": item.text} for item in plan.texts]
    if plan.joins and server is not None:
        token = _find_token(order, server)
        texts.append({"path": k3s_files.TOKEN, "mode": 0o600, "text": token.reveal() + "\n"})
    changes = {"files": [*placed, *texts], "obsolete": list(plan.obsolete), "start_with": plan.started_with}
    changes["version"] = order.version
    remote.call("k3s", step="apply", **changes, **unit)
    return result


def ensure_running(remote: NodeClient, order: NodeOrder, server: NodeClient | None, check: bool) -> Result:
    """Start the unit, or start it again after a change, and wait until the machine is in the cluster.

    One that is running with what :func:`ensure_present` has placed is not started again.
    """
    if check:
        return {"changed": True}
    is_server = order.settings.role == "server"
    asked: Result = {"unit": order.settings.unit, "wait_s": order.wait_s, "kubeconfig": is_server}
    member = order.settings.node if order.settings.has_etcd else ""
    try:
        answer = remote.ask("k3s", step="restart", member=member, **asked)
    finally:
        if server is not None and not is_server:
            tokens.end_tokens(server, order.home, order.settings.node)
    if answer.get("problem"):
        raise NodeError(remote.name, answer["problem"], _find_fix(answer["problem"], order.settings.node))
    if is_server:
        _write_kubeconfig(order, answer["kubeconfig"], check)
    return {"changed": bool(answer["changed"])}


def ensure_absent(remote: NodeClient, order: NodeOrder, check: bool) -> Result:
    """Take K3s away from a machine; with the last server the kubeconfig and all tokens are over.

    A machine that is gone may leave a cluster that stays: ``problem`` says what remains on it.
    """
    try:
        if check:
            return {"changed": read_facts(remote, order, ())["record"] is not None}
        removed = remote.call("k3s", step="remove")["removed"]
    except UnreachableError as error:
        if not order.stays:
            raise
        if order.settings.role == "server" and not check:
            tokens.end_server_token(order.home, order.settings.node)
        return {"changed": False, "problem": f"{error.message}. {_REMAINS}"}
    if order.settings.role == "server" and order.stays:
        tokens.end_server_token(order.home, order.settings.node)
    elif order.settings.role == "server":
        tokens.end_tokens(None, order.home)
        removed = access.remove_kubeconfig(order.home) or removed
    return {"changed": removed}


def read_machine(remote: NodeClient, order: NodeOrder) -> tuple[dict[str, t.Any], NodeOrder, list[k3s_files.NodeFile]]:
    """Return what is on the machine, the order as it is for it, and the files that it shall have.

    :raises NodeError: when it lacks the runtime that was asked for.
    """
    facts = read_facts(remote, order, k3s_files.render(order.settings))
    driver = facts["driver"]
    has_gpu = bool(driver["module"] or driver["gpus"])
    if order.runtime == "nvidia" and not driver["runtime"]:
        fix = "Install the NVIDIA container toolkit, or set k3s_default_runtime to auto"
        raise NodeError(remote.name, "nvidia-container-runtime is not installed", fix)
    is_nvidia = order.runtime == "nvidia" or (order.runtime == "auto" and has_gpu and driver["runtime"])
    chosen = "nvidia" if is_nvidia else "" if order.runtime == "auto" else order.runtime
    settings = dataclasses.replace(_settle(order, facts), default_runtime=chosen)
    return facts, dataclasses.replace(order, settings=settings), k3s_files.render(settings)


def _settle(order: NodeOrder, facts: t.Mapping[str, t.Any]) -> k3s_files.K3sSettings:
    """Return the settings with the server that a machine has joined already: another one would start K3s again.

    K3s knows all servers then. A server with etcd ignores both options; one with SQLite becomes the first with etcd.
    """
    settings, there = order.settings, str(facts["joins_at"])
    if settings.role == "server" and facts["datastore"]:
        has_etcd = facts["datastore"] == "etcd"
        return dataclasses.replace(
            settings, server=there if has_etcd else "", init=not there if has_etcd else settings.has_etcd
        )
    is_known = not order.addresses or urllib.parse.urlsplit(there).hostname in order.addresses
    return dataclasses.replace(settings, server=there) if facts["joined"] and there and is_known else settings


def _find_token(order: NodeOrder, server: NodeClient) -> Secret:
    """Return the token by which a machine joins: the user's, the servers' one, or one of its own.

    One for agents lets no server join.
    """
    node, is_server = order.settings.node, order.settings.role == "server"
    if order.token is not None and (not is_server or "::server:" in order.token.reveal()):
        return order.token
    if is_server:
        return tokens.read_server_token(server, order.home, node)
    tokens.end_tokens(server, order.home, node)
    return tokens.create_token(server, order.home, node, order.token_ttl_s)


def _write_kubeconfig(order: NodeOrder, text: str | None, check: bool) -> bool:
    return access.write_kubeconfig(order.home, text, order.api_address, check, order.api_addresses)


def read_facts(remote: NodeClient, order: NodeOrder, wanted: t.Sequence[k3s_files.NodeFile]) -> dict[str, t.Any]:
    """Return what is on the machine."""
    paths = [
        k3s_files.PROGRAM,
        *(item.path for item in wanted),
        *(f"{k3s_files.IMAGES}/{name}" for name in order.list_archives()),
    ]
    is_server = order.settings.role == "server"
    return remote.call("k3s", step="look", paths=paths, unit=order.settings.unit, kubeconfig=is_server)


def refuse_machine(name: str, facts: t.Mapping[str, t.Any], order: NodeOrder) -> None:
    """Refuse a machine that K3s cannot be brought up on.

    :raises RefusedError: saying why.
    """
    settings = order.settings
    asked = {"version": order.version, "node_ip": settings.node_ip, "flannel_iface": settings.flannel_iface}
    member = K3sMember.from_answer(name, settings.role, settings.node, facts, **asked)
    checks.raise_first_failure(cluster_checks.check_install(member))


def make_plan(
    facts: t.Mapping[str, t.Any], order: NodeOrder, wanted: t.Sequence[k3s_files.NodeFile], check: bool
) -> NodePlan:
    """Return what differs between a machine and what it shall be."""
    there, record = facts["files"], facts["record"] or {}
    texts = [item for item in wanted if not _same(there[item.path], item.sha256, item.mode)]
    pieces = _pieces(facts, order, check)
    all_digests = {item.path: item.sha256 for item in pieces} | {item.path: item.sha256 for item in wanted}
    # Archives of images are imported while K3s runs, and taints are changed through the API.
    while_running = (k3s_files.IMAGES, k3s_files.TAINTS)
    started_with = _digest([item for item in all_digests.items() if not item[0].startswith(while_running)])
    known = {*all_digests, k3s_files.TOKEN}
    unit = facts["unit"] or {}
    return NodePlan(
        tuple(texts),
        tuple(item for item in pieces if not item.sha256 or not _same(there[item.path], item.sha256, item.mode)),
        tuple(sorted(path for path in record.get("files", {}) if path not in known)),
        started_with,
        unit.get("active") == "active" and record.get("started_with") == started_with,
        bool(unit.get("enabled")),
        bool(order.settings.server) and not (facts["joined"] if order.settings.role == "agent" else facts["datastore"]),
    )


def _pieces(facts: t.Mapping[str, t.Any], order: NodeOrder, check: bool) -> list[ReleaseFile]:
    architecture = cluster_checks.ARCHITECTURES[facts["architecture"]]
    asked = [(downloads.find("k3s", order.version, architecture), k3s_files.PROGRAM, 0o755)]
    asked += [
        (downloads.find("k3s-images", order.version, architecture, name), f"{k3s_files.IMAGES}/{name}", 0o644)
        for name in order.list_archives(architecture)
    ]
    return [find_file(item, path, mode, order.source, order.base, order.lock, check) for item, path, mode in asked]


def _find_fix(problem: str, node: str) -> str:
    if "Node password rejected" in problem:
        return f"Delete the Node {node} (kube_node, or cluster_absent with --limit), then run again"
    return ""


def _same(found: t.Mapping[str, t.Any] | None, sha256: str, mode: int) -> bool:
    return found is not None and found["sha256"] == sha256 and found["mode"] == mode


def _digest(values: t.Sequence[tuple[str, str]]) -> str:
    return hashlib.sha256(repr(sorted(values)).encode()).hexdigest()
