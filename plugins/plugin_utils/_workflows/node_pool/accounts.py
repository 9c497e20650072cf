# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Open the accounts of the option ``providers``; credentials also come from the environment."""

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
from ..._providers.registry import find_providers
from ..._providers.tailscale.provision import TailscaleAccount

# The options of a module, of which each value is validated where it is read; and a module's result.
Options = Mapping[str, object]
ModuleResult = dict[str, object]

NAMES = (*find_providers(), "tailscale")

# The options that every API has; the modules add their own.
API: dict[str, dict[str, object]] = {
    "api_token": {"type": "str", "no_log": True},
    "api_token_file": {"type": "path"},
    "api_url": {"type": "str"},
    "timeout_s": {"type": "int", "default": 120},
    "validate_certs": {"type": "bool", "default": True},
    "ca_path": {"type": "path"},
    "proxy": {"type": "str", "default": "env"},
    "account": {"type": "str"},
}
TAILNET: dict[str, dict[str, object]] = {
    "oauth_client_id": {"type": "str"},
    "oauth_client_secret": {"type": "str", "no_log": True},
    "oauth_client_secret_file": {"type": "path"},
    "tailnet": {"type": "str", "default": "-"},
}
_PROVIDER: dict[str, dict[str, object]] = {
    "name": {"type": "str", "required": True, "choices": list(NAMES)},
    **API,
    **TAILNET,
}
PROVIDERS: dict[str, dict[str, object]] = {
    "providers": {"type": "list", "elements": "dict", "default": [], "options": _PROVIDER}
}


class Externals(t.NamedTuple):
    """Clock, network and environment of this process, so that tests can replace them."""

    clock: Clock = SYSTEM_CLOCK
    exchange: Exchange | None = None
    environ: Mapping[str, str] = os.environ


def build_connection(options: Options, secret: Secret | None, externals: Externals) -> ProviderConnection:
    """Return the connection that the shared options of one API describe."""
    return ProviderConnection(
        secret=secret,
        api_url=str(options.get("api_url") or ""),
        validate_certs=options.get("validate_certs") is not False,
        ca_path=str(options.get("ca_path") or ""),
        proxy=str(options.get("proxy") or "env"),
        timeout_s=validators.decimal(0)(options.get("timeout_s") or 120, "timeout_s"),
        exchange=externals.exchange,
        clock=externals.clock,
    )


def parse_account_name(options: Options, path: str) -> str:
    """Return the user's own name for the account, empty when there is none."""
    name = options.get("account")
    return validators.text(name, f"{path}account") if name else ""


def open_tailnet(options: Options, externals: Externals, path: str = "") -> TailscaleAccount:
    """Return the tailnet that the options describe, with an API token or an OAuth client."""
    client = str(options.get("oauth_client_id") or "")
    option = "oauth_client_secret" if client else "api_token"
    variables = ("TAILSCALE_OAUTH_CLIENT_SECRET",) if client else ("TAILSCALE_API_KEY", "HEADSCALE_API_KEY")
    secret = _need_secret(
        SecretSource(f"{path}{option}", f"{path}{option}_file", variables), options, option, externals
    )
    return TailscaleAccount(
        build_connection(options, secret, externals),
        parse_account_name(options, path),
        client_id=client,
        tailnet=str(options.get("tailnet") or "-"),
    )


def _need_secret(source: SecretSource, options: Options, option: str, externals: Externals) -> Secret:
    file = options.get(f"{option}_file")
    return source.need(options.get(option), str(file) if file else None, externals.environ)


def parse_providers(value: object, path: str) -> list[Options]:
    """Return providers that no module has checked (a variable, a settings file), or raise InputError."""
    providers: list[Options] = []
    for index, item in enumerate(validators.list_of(validators.dictionary)(value or [], path)):
        place = f"{path}[{index}]"
        for key in item:
            if key not in _PROVIDER:
                near = validators.find_nearest(str(key), _PROVIDER)
                raise InputError(f"{place}.{key}", "is not an option", f"Did you mean '{near}'?" if near else "")
        providers.append({**item, "name": validators.choice(*NAMES)(item.get("name"), f"{place}.name")})
    return providers


def open_providers(value: object, externals: Externals) -> dict[str, MachineProvider]:
    """Return the providers of machines that the option ``providers`` configures, by name.

    Those whose environment variable is set need no entry. Raises InputError for a name twice or a missing credential.
    """
    providers = validators.list_of(validators.dictionary)(value or [], "providers")
    names = [item["name"] for item in providers]
    accounts: dict[str, MachineProvider] = {}
    for index, item in enumerate(providers):
        name, path = str(item["name"]), f"providers[{index}]"
        if names.count(name) > 1:
            raise InputError(f"{path}.name", f"names {name} a second time", "One account of a provider at a time")
        declaration = find_providers().get(name)
        if declaration is not None:
            secret = _need_secret(declaration.secret_source(path), item, "api_token", externals)
            connection = build_connection(item, secret, externals)
            accounts[name] = declaration.open_account(connection, parse_account_name(item, f"{path}."))
    for name, declaration in find_providers().items():
        from_environment = None if name in names else declaration.secret_source(name).find(environ=externals.environ)
        if from_environment is not None:
            accounts[name] = declaration.open_account(build_connection({}, from_environment, externals), "")
    return accounts


def open_accounts(value: object, externals: Externals) -> dict[str, ProviderAccount]:
    """Return every account that may hold something of ours: the providers of machines, and a tailnet."""
    accounts: dict[str, ProviderAccount] = dict(open_providers(value, externals))
    for index, item in enumerate(validators.list_of(validators.dictionary)(value or [], "providers")):
        if item["name"] == "tailscale":
            accounts["tailscale"] = open_tailnet(item, externals, f"providers[{index}].")
    return accounts
