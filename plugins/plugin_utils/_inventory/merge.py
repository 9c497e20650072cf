# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One machine seen by two plugins: the provider's record and what the mesh knows, made into one.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import typing as t
from collections.abc import Mapping

MESH_PROVIDER = "tailscale"


def is_same_machine(ours: Mapping[str, t.Any], theirs: t.Any) -> bool:
    """Return whether a host that another source called the same is the same machine as ours.

    A host without a record is one the user wrote down, to be completed. Two records are of one machine when one
    comes from the mesh and the other does not, or when they are the same thing twice; two providers that use one
    name rent out two machines.
    """
    if not isinstance(theirs, Mapping):
        return True
    sources = (ours.get("provider"), theirs.get("provider"))
    if sources[0] == sources[1]:
        return (ours.get("id"), ours.get("account")) == (theirs.get("id"), theirs.get("account"))
    return MESH_PROVIDER in sources or sources[1] is None


def merge_records(ours: dict[str, t.Any], theirs: t.Any) -> dict[str, t.Any]:
    """Return the record of a machine from two sources.

    The provider's word holds for what the machine is; the mesh adds its address and, as it is the way that was
    asked for last, the endpoint of whichever source has one.
    """
    if not isinstance(theirs, Mapping):
        return ours
    base, other = (theirs, ours) if ours.get("provider") == MESH_PROVIDER else (ours, theirs)
    result = {key: value if value is not None else other.get(key) for key, value in base.items()}
    for key in ("addresses", "gpu", "cpu", "ssh"):
        result[key] = _fill_gaps(base.get(key), other.get(key))
    if isinstance(ours.get("ssh"), Mapping) and ours["ssh"].get("host"):
        result["ssh"] = dict(ours["ssh"])
    both = [*base.get("network_types", ()), *other.get("network_types", ())]
    result["network_types"] = [name for name in ("mesh", "lan", "public") if name in both]
    return result


def _fill_gaps(first: t.Any, second: t.Any) -> dict[str, t.Any]:
    """Return ``first`` with the entries that it leaves empty taken from ``second``."""
    second = second if isinstance(second, Mapping) else {}
    first = first if isinstance(first, Mapping) else {}
    keys = [*first, *(key for key in second if key not in first)]
    return {key: second.get(key) if first.get(key) in (None, []) else first[key] for key in keys}
