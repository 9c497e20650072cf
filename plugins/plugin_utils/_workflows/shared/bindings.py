# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bindings in the state home: ``bindings/NAME.json``, 0600, with references to secrets and no secret."""

from __future__ import annotations

import json
import pathlib

from ....module_utils._model import validators
from ....module_utils._model.binding import NAME_LIMIT, Binding
from ....module_utils._model.errors import InputError, RefusedError
from ....module_utils._node import files
from .state_dir import StateHome


def binding_file(home: StateHome, name: str) -> pathlib.Path:
    """Return where a binding is, or would be."""
    return home.folder / "bindings" / f"{validators.name(NAME_LIMIT)(name, 'binding')}.json"


def list_bindings(home: StateHome) -> list[Binding]:
    """Return all bindings of the cluster, by name."""
    return [_read(place) for place in sorted((home.folder / "bindings").glob("*.json"))]


def find_binding(home: StateHome, name: str) -> Binding | None:
    """Return the binding ``name``, None when there is none."""
    place = binding_file(home, name)
    return _read(place) if place.is_file() else None


def load_binding(home: StateHome, name: str, option: str) -> Binding:
    """Return the binding ``name``.

    :raises InputError: when there is none, with the names that there are.
    """
    found = find_binding(home, name)
    if found is None:
        known = [binding.name for binding in list_bindings(home)]
        near = validators.find_nearest(name, known)
        listed = f"did you mean '{near}'?" if near else f"there are: {', '.join(known) or 'none'}"
        raise InputError(
            option, f"'{name}' is not a binding of cluster {home.folder.name} ({listed})",
            "List the service in muster_services and run the services playbook"
        )  # fmt: skip
    return found


def write_binding(home: StateHome, binding: Binding) -> None:
    """Write a binding, so that a reader sees the old one or the new one."""
    place = binding_file(home, binding.name)
    files.private_dir(place.parent)
    files.write_atomic(place, json.dumps(binding.to_dict(), indent=1).encode() + b"\n")


def remove_binding(home: StateHome, name: str) -> bool:
    """Remove a binding; the service behind it stays as it is. Return whether there was one."""
    place = binding_file(home, name)
    existed = place.exists()
    place.unlink(missing_ok=True)
    return existed


def _read(place: pathlib.Path) -> Binding:
    fix = "Move it away and run the services playbook"
    try:
        return Binding.from_dict(json.loads(place.read_bytes()), place.name)
    except InputError as exc:
        raise RefusedError(f"{place} is damaged: {exc.message}", fix) from exc
    except (OSError, ValueError) as exc:
        raise RefusedError(f"{place} is damaged", fix) from exc
