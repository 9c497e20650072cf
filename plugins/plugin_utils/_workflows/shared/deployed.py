# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Services that were deployed from here: ``services/NAME.json`` says where, ``services/NAME.credentials`` has the keys.

Both are in the folder of the cluster in the state home, 0600. Credentials are made once and never leave it but for the
service itself. Of a service that was removed without its data ``services/NAME.removed.json`` says what it was.
"""

from __future__ import annotations

import contextlib
import json
import pathlib
import typing as t

from ....module_utils._model import validators
from ....module_utils._model.binding import NAME_LIMIT, SecretPointer
from ....module_utils._model.errors import RefusedError
from ....module_utils._node import files
from ....module_utils._secrets.scrubber import remember
from .state_dir import StateHome

_FIX = "Move it away and run the services playbook"


def credentials_file(home: StateHome, name: str) -> pathlib.Path:
    """Return where the credentials of a service are, or would be."""
    return home.folder / "services" / f"{validators.name(NAME_LIMIT)(name, 'service')}.credentials"


def read_credentials(home: StateHome, name: str) -> dict[str, str] | None:
    """Return the credentials of a service, None where there are none; every value is a secret from then on."""
    place = credentials_file(home, name)
    if not place.is_file():
        return None
    pairs = [line.partition("=") for line in place.read_text().splitlines() if line and not line.startswith("#")]
    found = {key.strip(): value.strip() for key, _equals, value in pairs}
    for value in found.values():
        remember(value)
    return found


def write_credentials(home: StateHome, name: str, values: t.Mapping[str, str]) -> None:
    """Keep the credentials of a service, before they are used anywhere."""
    place = credentials_file(home, name)
    files.private_dir(place.parent)
    for value in values.values():
        remember(value)
    lines = [f"# Credentials of the service {name}, made once.", *(f"{key} = {value}" for key, value in values.items())]
    files.write_atomic(place, ("\n".join(lines) + "\n").encode())


def read_deployed(home: StateHome, name: str) -> dict[str, t.Any] | None:
    """Return what is known of a service that was deployed: ``endpoint``, ``backend``, ``place``; None without one.

    :raises RefusedError: when the file is damaged.
    """
    return _read(_record(home, name))


def list_deployed(home: StateHome) -> dict[str, dict[str, t.Any]]:
    """Return what is known of all services that were deployed, by name.

    :raises RefusedError: when a file is damaged.
    """
    places = sorted((home.folder / "services").glob("*.json"))
    names = [place.stem for place in places if not place.stem.endswith(".removed")]
    return {name: about for name in names if (about := read_deployed(home, name)) is not None}


def read_removed(home: StateHome, name: str) -> dict[str, t.Any] | None:
    """Return what was known of a service that was removed and whose data stayed, None without one.

    :raises RefusedError: when the file is damaged.
    """
    return _read(_removal_record(home, name))


def write_deployed(home: StateHome, name: str, about: t.Mapping[str, t.Any]) -> bool:
    """Keep what is known of a service; return whether it was other before."""
    if read_deployed(home, name) == about:
        return False
    place = _record(home, name)
    files.private_dir(place.parent)
    files.write_atomic(place, json.dumps(about, indent=1).encode() + b"\n")
    _removal_record(home, name).unlink(missing_ok=True)
    return True


def remove_deployed(home: StateHome, name: str, *, forget: bool) -> None:
    """Remove what is known of a service; what its data was written by and with stays as long, unless ``forget``."""
    if forget:
        for place in (_record(home, name), _removal_record(home, name), credentials_file(home, name)):
            place.unlink(missing_ok=True)
        return
    with contextlib.suppress(FileNotFoundError):
        _record(home, name).replace(_removal_record(home, name))


def point_at(home: StateHome, name: str, keys: t.Mapping[str, str]) -> SecretPointer:
    """Return where a binding finds the credentials of a service."""
    return SecretPointer("file", str(credentials_file(home, name)), dict(keys))


def _record(home: StateHome, name: str) -> pathlib.Path:
    return home.folder / "services" / f"{validators.name(NAME_LIMIT)(name, 'service')}.json"


def _removal_record(home: StateHome, name: str) -> pathlib.Path:
    return _record(home, name).with_suffix(".removed.json")


def _read(place: pathlib.Path) -> dict[str, t.Any] | None:
    try:
        return t.cast("dict[str, t.Any]", json.loads(place.read_bytes()))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as exc:
        raise RefusedError(f"{place} is damaged", _FIX) from exc
