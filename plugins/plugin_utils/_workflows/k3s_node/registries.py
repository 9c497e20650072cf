# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``registries.yaml`` of a machine: what the user writes, and where images of bound registries are pulled from.

Credentials are not in it: the kubelet has them from the Secret of each run.
"""

from __future__ import annotations

import typing as t
import urllib.parse

from ....module_utils._model.binding import Binding
from ....module_utils._model.errors import InputError
from ....module_utils._model.service_registry import hosts_of
from ..._hosts.k3s_files import NodeFile
from ..shared import bindings
from ..shared.state_dir import StateHome

Registries = dict[str, dict[str, t.Any]]


def build_registries(given: t.Mapping[str, t.Any], home: StateHome) -> tuple[dict[str, t.Any], tuple[NodeFile, ...]]:
    """Return the content of ``registries.yaml`` and the files of own CAs that it names.

    What the user writes of a host goes before what bindings say of it.
    """
    mirrors: dict[str, t.Any] = {}
    configs: dict[str, t.Any] = {}
    authorities = []
    for binding in bindings.list_bindings(home):
        if not _needs_entry(binding):
            continue
        for host in hosts_of(binding):
            mirrors.setdefault(host, {"endpoint": []})["endpoint"].append(binding.endpoint)
        if binding.ca:
            place = f"/etc/rancher/k3s/muster-registry-{binding.name}.pem"
            authorities.append(NodeFile(place, 0o644, binding.ca))
            # By the endpoint's host, not by the mirror's name (K3s, "Private registry configuration").
            configs[urllib.parse.urlsplit(binding.endpoint).netloc] = {"tls": {"ca_file": place}}
    for host in mirrors:
        _refuse_unread_auth(host, mirrors[host]["endpoint"], given)
    found = {
        **given,
        "mirrors": {**mirrors, **(given.get("mirrors") or {})},
        "configs": _merge(configs, given.get("configs") or {}),
    }
    return {key: value for key, value in found.items() if value}, tuple(authorities)


def _refuse_unread_auth(host: str, endpoints: t.Sequence[str], given: t.Mapping[str, t.Any]) -> None:
    """Refuse credentials by the name of a mirror: K3s looks for them by the host of what it asks.

    :raises InputError: naming both.
    """
    configs = given.get("configs") or {}
    asked = [urllib.parse.urlsplit(endpoint).netloc for endpoint in endpoints]
    is_own = host in (given.get("mirrors") or {}) or host in asked
    if not is_own and (configs.get(host) or {}).get("auth") and not any(name in configs for name in asked):
        raise InputError(
            f"k3s_registries.configs.{host}",
            f"its images are pulled from {asked[0]}, for which K3s does not read these credentials",
            f"Name {asked[0]} in configs",
        )


def _needs_entry(binding: Binding) -> bool:
    """Return whether a machine must be told of a registry: one with a public certificate and its own name need not."""
    is_plain = binding.endpoint.startswith("https:") and not binding.ca and not binding.hosts
    return binding.component == "registry" and not is_plain


def _merge(ours: t.Mapping[str, t.Any], theirs: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    return {host: {**(ours.get(host) or {}), **(theirs.get(host) or {})} for host in (*ours, *theirs)}
