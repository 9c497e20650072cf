# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where a deployed service answers, and where its own credentials are.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import pathlib
import typing as t

from ....module_utils._model.binding import SecretPointer
from ....module_utils._model.errors import InputError
from ....module_utils._model.node import Node
from ....module_utils._model.node_address import choose_address
from ....module_utils._model.service import Service
from ..shared.state_dir import StateHome


def endpoint_of(service: Service, record: Node, hostvars: t.Mapping[str, t.Any]) -> str:
    """Return the address by which nodes reach a service that was deployed on a host of the inventory."""
    host = str(service.host)
    variables = hostvars[host]
    chosen = choose_address(record, ())
    address = service.address or variables.get("muster_address") or (chosen.address if chosen else None)
    address = str(address or variables.get("ansible_host") or host)
    if address in ("0.0.0.0", "::"):
        raise InputError(f"muster_services.{service.name}.address", "is not an address that others reach")
    return f"http://{f'[{address}]' if ':' in address else address}:{service.port}"


def keys_file(home: StateHome, name: str) -> pathlib.Path:
    """Return the file with the keys of a store that was deployed without a ``secret_ref``."""
    return home.folder / "secrets" / f"{name}.keys"


def own_pointer(home: StateHome, name: str) -> SecretPointer:
    """Return the reference to these keys."""
    keys = {"access_key": "AWS_ACCESS_KEY_ID", "secret_key": "AWS_SECRET_ACCESS_KEY"}
    return SecretPointer("file", str(keys_file(home, name)), keys)
