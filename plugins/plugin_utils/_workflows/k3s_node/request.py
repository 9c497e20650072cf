# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The options of ``k3s_node`` as an order for one machine."""

from __future__ import annotations

import dataclasses
import pathlib
import re
import typing as t

from ....module_utils._model import validators
from ....module_utils._model.errors import InputError
from ....module_utils._model.k3s import NODE_NAME
from ....module_utils._secrets.secret import Secret
from ..._hosts import downloads, k3s_files
from ..._hosts.node_client import NodeClient
from ..shared.digest_lock import find_lock
from ..shared.state_dir import StateHome
from . import leaving, node
from .registries import build_registries

_VERSION = re.compile(r"v[0-9]+\.[0-9]+\.[0-9]+(-rc[0-9]+)?\+k3s[0-9]+\Z")
_TTL_MIN, _TTL_MAX = 60, 86400


def run(
    options: t.Mapping[str, t.Any],
    remotes: t.Sequence[NodeClient],
    sources: t.Sequence[str],
    base: pathlib.Path,
    check: bool,
    hostvars: t.Mapping[str, t.Mapping[str, t.Any]],
) -> node.Result:
    """Return the result of ``k3s_node``; ``remotes``: the machine and, where it is named, the server, or the others.

    :param hostvars: variables by host, for where the controller reaches the servers.
    """
    remote, server = remotes[0], (remotes[1] if len(remotes) > 1 else None)
    order = read_order(options, remote.name, sources, base)
    servers = [str(name) for name in options.get("servers") or [] if name in hostvars]
    order = dataclasses.replace(order, api_addresses=tuple(_find_address(name, hostvars[name]) for name in servers))
    if options["state"] == "absent":
        return node.ensure_absent(remote, order, check)
    if options["state"] == "leaving":
        return leaving.ensure_leaving(remotes, order, list(options["leaving"]), check)
    work = node.ensure_running if options["state"] == "restarted" else node.ensure_present
    return work(remote, order, server, check)


def read_order(
    options: t.Mapping[str, t.Any], host: str, sources: t.Sequence[str], base: pathlib.Path
) -> node.NodeOrder:
    """Return the order that the options describe.

    :raises InputError: naming the option.
    """
    version = str(options.get("version") or downloads.default_version("k3s"))
    if not _VERSION.match(version):
        raise InputError("version", f"'{version}' is not a version of K3s", "Write for instance v1.36.4+k3s1")
    home, settings = StateHome(options["state_home"], str(options["cluster"])), _settings(options, host)
    if options["state"] in ("present", "restarted"):
        registries, authorities = build_registries(options["registries"], home)
        settings = dataclasses.replace(settings, registries=registries, authorities=authorities)
    return node.NodeOrder(
        settings=settings,
        home=home,
        lock=find_lock(sources, base, options.get("lock_file")),
        base=base,
        version=version,
        source=str(options.get("source") or ""),
        images=tuple(options["images"]),
        token=Secret(options["token"], "k3s_token") if options.get("token") else None,
        token_ttl_s=validators.integer(_TTL_MIN, _TTL_MAX)(options["token_ttl_s"], "token_ttl_s"),
        api_address=str(options.get("api_address") or host),
        runtime=str(options.get("default_runtime") or "auto"),
        addresses=tuple(options.get("server_addresses") or ()),
        stays=bool(set(options.get("servers") or ()) - {host, *(options.get("leaving") or ())}),
        wait_s=validators.integer(1)(options["wait_s"], "wait_s"),
        adopt=options.get("adopt") is True,
    )


def _find_address(host: str, variables: t.Mapping[str, t.Any]) -> str:
    return str(variables.get("k3s_api_address") or variables.get("ansible_host") or host)


def _settings(options: t.Mapping[str, t.Any], host: str) -> k3s_files.K3sSettings:
    name = str(options.get("node_name") or host).lower()
    if not NODE_NAME.match(name):
        raise InputError("node_name", f"'{name}' is not a name for a Node", "Use letters, digits, '-' and '.'")
    address = str(options.get("server_address") or options.get("server") or "")
    shown = f"[{address}]" if ":" in address else address
    is_agent, is_first = options["role"] == "agent", options.get("server") in (None, "", host)
    if is_agent and options["state"] in ("present", "restarted") and is_first:
        raise InputError("server", f"{host} is an agent", "Name the host that is the server")
    return k3s_files.K3sSettings(
        role=options["role"],
        node=name,
        server="" if is_first else f"https://{shown}:{k3s_files.API_PORT}",
        init=options.get("embedded_etcd") is True and is_first and not is_agent,
        node_ip=str(options.get("node_ip") or ""),
        flannel_iface=str(options.get("flannel_iface") or ""),
        names=tuple(dict.fromkeys(options["tls_san"])),
        pods=str(options["cluster_cidr"]),
        services=str(options["service_cidr"]),
        taints=tuple(options["taints"]),
        traefik=options["traefik"] is True,
        servicelb=options["servicelb"] is True,
        memlock=options["memlock"] is True,
        registries=options["registries"],
        more=options["config"],
    )
