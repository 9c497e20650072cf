# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The parts of a program of monitoring that is deployed: the service it works with, and where it sends alerts."""

from __future__ import annotations

import dataclasses
import functools
import pathlib
import typing as t

import yaml

from ....module_utils._model.errors import InputError, RefusedError
from ....module_utils._model.service import MONITORING, Service, check_endpoint
from ....module_utils._model.service_deploy import Deploy, is_address
from ..._services.component import Peer, certificate_of
from ..._services.components import find_component
from ..shared import bindings, credentials, deployed
from ..shared.kube_connection import open_client
from ..shared.request import RunRequest
from ..shared.state_dir import StateHome


@dataclasses.dataclass(frozen=True, slots=True)
class Alerts:
    """See :class:`..._services.component.Site`, which has the same fields."""

    peer: Peer | None = None
    webhook: str = dataclasses.field(default="", repr=False)
    webhook_token: str = dataclasses.field(default="", repr=False)
    config: str = dataclasses.field(default="", repr=False)


def find_alerts(request: RunRequest, home: StateHome, service: Service) -> Alerts:
    """Return the parts of a service of the kind monitoring, none for others and for one that is removed.

    :raises InputError: naming what cannot be read, or is of another program.
    :raises RefusedError: naming a service that is neither deployed nor bound.
    """
    place, option = t.cast(Deploy, service.deploy), f"muster_services.{service.name}.deploy"
    if service.kind != "monitoring" or service.state == "absent":
        return Alerts()
    key = "prometheus" if place.prometheus else "alertmanager"
    named = getattr(place, key)
    return Alerts(
        _find_peer(request, home, named, key, f"{option}.{key}") if named else None,
        *_read_webhook(request, place, f"{option}.webhook"),
        _read_config(request.base, place.config, f"{option}.config"),
    )


def _find_peer(request: RunRequest, home: StateHome, named: str, program: str, option: str) -> Peer | None:
    """Return how a service is reached: one at an address, one that was deployed from here, or one that is bound.

    In check mode it may be among what would be deployed first.
    """
    if is_address(named):
        return Peer(named.rstrip("/"))
    about, binding = deployed.read_deployed(home, named), bindings.find_binding(home, named)
    if about is not None:
        kind, provider = str(about["kind"]), str(about["provider"])
        _refuse_other(named, program, kind, provider, option)
        keys, names = deployed.read_credentials(home, named) or {}, find_component(kind, provider, option).secret_keys
        return Peer(str(about["endpoint"]), certificate_of(keys), keys[names["username"]], keys[names["password"]])
    if binding is not None:
        _refuse_other(named, program, binding.component, binding.provider or MONITORING[0], option)
        found = credentials.read_monitoring_keys(binding, option, _opener(request))
        words = (found.get(key, "") for key in ("username", "password", "token"))
        return Peer(binding.endpoint, binding.ca, *words)
    if request.check:
        return None
    fix = f"List it in muster_services before the one that uses it, or name the address of its {program}"
    raise RefusedError(f"{option}: no service {named} is deployed or bound for {home.folder.name}", fix)


def _refuse_other(named: str, program: str, kind: str, provider: str, option: str) -> None:
    """Refuse a service that is another program."""
    if kind != "monitoring" or provider != program:
        raise InputError(option, f"'{named}' is {provider if kind == 'monitoring' else kind}, not {program}")


def _read_webhook(request: RunRequest, place: Deploy, option: str) -> tuple[str, str]:
    """Return the address and the token, empty where there is none."""
    if place.webhook is None:
        return "", ""
    address, token = credentials.read_webhook(place.webhook, option, _opener(request))
    check_endpoint(address.reveal().partition("?")[0], option)
    return address.reveal(), token.reveal() if token else ""


def _read_config(base: pathlib.Path, name: str | None, option: str) -> str:
    """Return the text of a configuration of Alertmanager, which itself judges all of it when it starts."""
    if name is None:
        return ""
    place = pathlib.Path(base, name).expanduser()
    try:
        text = place.read_text()
        found = yaml.safe_load(text)
    except (OSError, UnicodeDecodeError) as exc:
        reason = getattr(exc, "strerror", None) or "not text"
        raise InputError(option, f"cannot read {place}: {reason}") from None
    except yaml.YAMLError as exc:
        mark = getattr(exc, "problem_mark", None)
        where = f", line {mark.line + 1}" if mark else ""
        raise InputError(option, f"{place}{where}: is not YAML", "Try it with amtool check-config") from None
    if not isinstance(found, dict) or not {"route", "receivers"} <= found.keys():
        raise InputError(option, f"{place} has no route and receivers", "Try it with amtool check-config")
    return text


def _opener(request: RunRequest) -> credentials.OpenCluster:
    return functools.partial(open_client, request.options, request.base, request.progress.say)
