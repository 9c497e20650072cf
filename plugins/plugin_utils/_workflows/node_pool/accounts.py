# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From a user's ``providers`` to accounts that can rent and give back; credentials also come from the environment.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import os
import typing as t
from collections.abc import Mapping

from ....module_utils._http.clock import SYSTEM_CLOCK, Clock
from ....module_utils._http.connection_pool import Exchange
from ....module_utils._model import validators
from ....module_utils._model.errors import InputError
from ....module_utils._secrets.secret import Secret
from ....module_utils._secrets.sources import SecretSource
from ..._providers.base import MachineProvider, ProviderAccount
from ..._providers.connection import ProviderConnection
from ..._providers.registry import CATALOG
from ..._providers.tailscale.provision import TailscaleAccount

Dict = dict[str, t.Any]
NAMES = (*CATALOG, "tailscale")

# The options that every API has; the modules add what is theirs.
API: dict[str, Dict] = {
    "api_token": {"type": "str", "no_log": True},
    "api_token_file": {"type": "path"},
    "api_url": {"type": "str"},
    "timeout_s": {"type": "int", "default": 120},
    "validate_certs": {"type": "bool", "default": True},
    "ca_path": {"type": "path"},
    "proxy": {"type": "str", "default": "env"},
    "account": {"type": "str"},
}
TAILNET: dict[str, Dict] = {
    "oauth_client_id": {"type": "str"},
    "oauth_client_secret": {"type": "str", "no_log": True},
    "oauth_client_secret_file": {"type": "path"},
    "tailnet": {"type": "str", "default": "-"},
}
PROVIDERS: dict[str, Dict] = {
    "providers": {
        "type": "list",
        "elements": "dict",
        "default": [],
        "options": {"name": {"type": "str", "required": True, "choices": list(NAMES)}, **API, **TAILNET},
    }
}


class Externals(t.NamedTuple):
    """What lies beyond this process, so that tests can replace it."""

    clock: Clock = SYSTEM_CLOCK
    exchange: Exchange | None = None
    environ: Mapping[str, str] = os.environ


def build_connection(options: Mapping[str, t.Any], secret: Secret | None, externals: Externals) -> ProviderConnection:
    """Return the access that the shared options of one API describe."""
    return ProviderConnection(
        secret=secret,
        api_url=options.get("api_url") or "",
        validate_certs=options.get("validate_certs") is not False,
        ca_path=options.get("ca_path") or "",
        proxy=options.get("proxy") or "env",
        timeout_s=float(options.get("timeout_s") or 120),
        exchange=externals.exchange,
        clock=externals.clock,
    )


def parse_account_name(options: Mapping[str, t.Any], path: str) -> str:
    """Return the user's own name for the account, empty when there is none."""
    given = options.get("account")
    return validators.text(given, f"{path}account") if given else ""


def open_tailnet(options: Mapping[str, t.Any], externals: Externals, path: str = "") -> TailscaleAccount:
    """Return the tailnet that the options describe, with an API token or an OAuth client."""
    client = options.get("oauth_client_id") or ""
    if client:
        source = SecretSource(
            f"{path}oauth_client_secret", f"{path}oauth_client_secret_file", ("TAILSCALE_OAUTH_CLIENT_SECRET",)
        )
        secret = source.need(
            options.get("oauth_client_secret"), options.get("oauth_client_secret_file"), externals.environ
        )
    else:
        variables = ("TAILSCALE_API_KEY", "HEADSCALE_API_KEY")
        source = SecretSource(f"{path}api_token", f"{path}api_token_file", variables)
        secret = source.need(options.get("api_token"), options.get("api_token_file"), externals.environ)
    tailnet = options.get("tailnet") or "-"
    return TailscaleAccount(
        build_connection(options, secret, externals),
        parse_account_name(options, path),
        client_id=client,
        tailnet=tailnet,
    )


def parse_providers(value: t.Any, path: str) -> list[Dict]:
    """Return providers that no module has checked (a variable, a settings file), or raise InputError."""
    known = PROVIDERS["providers"]["options"]
    found = []
    for index, item in enumerate(validators.list_of(validators.mapping)(value or [], path)):
        place = f"{path}[{index}]"
        for key in item:
            if key not in known:
                near = validators.nearest(str(key), known)
                raise InputError(f"{place}.{key}", "is not an option", f"Did you mean '{near}'?" if near else "")
        found.append({**item, "name": validators.choice(*NAMES)(item.get("name"), f"{place}.name")})
    return found


def open_providers(providers: t.Sequence[Mapping[str, t.Any]], externals: Externals) -> dict[str, MachineProvider]:
    """Return the providers of machines that are configured, by name.

    Those whose environment variable is set need no entry. Raises InputError for a name twice or a missing credential.
    """
    found: dict[str, MachineProvider] = {}
    seen = [item["name"] for item in providers]
    for index, item in enumerate(providers):
        name, path = str(item["name"]), f"providers[{index}]"
        if seen.count(name) > 1:
            raise InputError(f"{path}.name", f"names {name} a second time", "One account of a provider at a time")
        if name in CATALOG:
            entry = CATALOG[name]
            secret = entry.secret(path).need(item.get("api_token"), item.get("api_token_file"), externals.environ)
            found[name] = entry.make(build_connection(item, secret, externals), parse_account_name(item, f"{path}."))
    for name, entry in CATALOG.items():
        secret_found = entry.secret(name).find(environ=externals.environ) if name not in seen else None
        if secret_found is not None:
            found[name] = entry.make(build_connection({}, secret_found, externals), "")
    return found


def open_accounts(providers: t.Sequence[Mapping[str, t.Any]], externals: Externals) -> dict[str, ProviderAccount]:
    """Return everything that is configured and may hold something of ours: the providers, and a tailnet."""
    found: dict[str, ProviderAccount] = dict(open_providers(providers, externals))
    for index, item in enumerate(providers):
        if item["name"] == "tailscale":
            found["tailscale"] = open_tailnet(item, externals, f"providers[{index}].")
    return found
