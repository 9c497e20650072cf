# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From what ssh resolves a host to, to a node record and Ansible's connection variables."""

from __future__ import annotations

import ipaddress
import re
import shlex
import typing as t
from collections.abc import Mapping, Sequence

from ....module_utils._model.errors import InputError
from ....module_utils._model.node_facts import find_mesh_range
from ..node_record import HostVariables, ProviderHost, build_record
from ..parsing import JsonObject

PREFIX = "ssh_config_"
# What decides how and as whom ssh connects, beside the values that Ansible has variables for.
_CARRIED = {
    "proxyjump": "ProxyJump",
    "proxycommand": "ProxyCommand",
    "hostkeyalias": "HostKeyAlias",
    "certificatefile": "CertificateFile",
    "identitiesonly": "IdentitiesOnly",
    "identityagent": "IdentityAgent",
    "userknownhostsfile": "UserKnownHostsFile",
    "stricthostkeychecking": "StrictHostKeyChecking",
}
Settings = Mapping[str, Sequence[str]]


def to_host(item: JsonObject) -> ProviderHost:
    """Return the record and variables of one host."""
    alias, file = str(item["alias"]), str(item["file"])
    # What ssh does without the file, and with it for the address: what all three agree on need not be said.
    settings, otherwise = t.cast(Settings, item["settings"]), t.cast("list[Settings]", item["otherwise"])
    name = _first(settings, "hostname") or alias
    port = _read_port(alias, _first(settings, "port"))
    user = _first(settings, "user")
    given_user = None if all(user == _first(other, "user") for other in otherwise) else user
    network, addresses = _find_network(name)
    record = build_record(
        f"ssh/{alias}",
        alias,
        "ssh_config",
        "",
        "owned",
        None,
        "unknown",
        user=given_user,
        mesh=addresses if network == "mesh" else (),
        lan=addresses if network == "lan" else (),
        public=addresses if network == "public" else (),
    )
    keys = [_expand(value, alias, settings) for value in settings.get("identityfile", ())]
    are_usual = all(settings.get("identityfile") == other.get("identityfile") for other in otherwise)
    own_keys = [] if are_usual else keys
    data: HostVariables = {
        f"{PREFIX}aliases": item["aliases"],
        f"{PREFIX}user": user,
        f"{PREFIX}proxy_jump": _first(settings, "proxyjump"),
        f"{PREFIX}identity_files": own_keys,
    }
    if own_keys:
        data["ansible_ssh_private_key_file"] = own_keys[0]
    # A jump host is looked up in the file, which ssh reads by itself only where it is the user's own.
    arguments = [*(["-F", file] if file else []), *_options(alias, settings, otherwise, own_keys[1:])]
    if arguments:
        data["ansible_ssh_common_args"] = shlex.join(arguments)
    return ProviderHost(f"ssh/{alias}", alias, record, data, direct=(name, port, given_user))


def _first(settings: Settings, keyword: str) -> str | None:
    value = next(iter(settings.get(keyword, ())), None)
    return None if value is None or value.lower() == "none" else value


def _read_port(alias: str, value: str | None) -> int:
    if value is None or not value.isdigit() or not 0 < int(value) < 65536:
        raise InputError(f"Host {alias}", f"Port {value} is not a port", "Correct it in the file: 1 to 65535")
    return int(value)


def _find_network(name: str) -> tuple[str, tuple[str, ...]]:
    """Return an address and its network; nothing for a name, whose address the node itself says."""
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return "", ()
    network = "mesh" if find_mesh_range(str(address)) else "public" if address.is_global else "lan"
    return network, (str(address),)


def _expand(value: str, alias: str, settings: Settings) -> str:
    """Return a value with the marks replaced that would mean another host once ssh is given the resolved name."""
    known = {"%n": alias, "%k": _first(settings, "hostkeyalias") or alias}
    return re.sub(r"%.", lambda match: known.get(match[0], match[0]), value)


def _options(alias: str, settings: Settings, otherwise: Sequence[Settings], more_keys: Sequence[str]) -> list[str]:
    found = []
    for keyword, option in _CARRIED.items():
        values = settings.get(keyword, ())
        if all(values == other.get(keyword, ()) for other in otherwise):
            continue
        # Nothing is a value, too: the address alone may have a jump host.
        for value in values or ("none",):
            found += ["-o", f"{option}={_expand(value, alias, settings)}"]
    for key in more_keys:
        found += ["-o", f"IdentityFile={key}"]
    return found
