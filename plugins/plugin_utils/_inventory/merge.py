# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Merge the records of one machine from two inventory plugins: the provider's and the mesh's."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping

MESH_PROVIDER = "tailscale"


def is_same_machine(ours: Mapping[str, object], theirs: object) -> bool:
    """Return whether a host of the same name from another source is the same machine as ours.

    A host without a record was written by the user, to be completed. Two records are of one machine when exactly one
    comes from the mesh, or when provider, id and account agree; two providers that use one name have two machines.
    """
    if not isinstance(theirs, Mapping):
        return True
    sources = (ours.get("provider"), theirs.get("provider"))
    if sources[0] == sources[1]:
        return (ours.get("id"), ours.get("account")) == (theirs.get("id"), theirs.get("account"))
    return MESH_PROVIDER in sources or sources[1] is None


def merge_records(ours: Mapping[str, object], theirs: object) -> Mapping[str, object]:
    """Return the record of a machine from two sources.

    The provider's values win; the mesh adds its address. Of the SSH endpoints the one of ``ours`` wins, where it has
    one, because its source was read last.
    """
    if not isinstance(theirs, Mapping):
        return ours
    base, other = (theirs, ours) if ours.get("provider") == MESH_PROVIDER else (ours, theirs)
    result = {key: value if value is not None else other.get(key) for key, value in base.items()}
    for key in ("addresses", "gpu", "cpu", "ssh"):
        result[key] = _fill_gaps(base.get(key), other.get(key))
    ssh = ours.get("ssh")
    if isinstance(ssh, Mapping) and ssh.get("host"):
        result["ssh"] = dict(ssh)
    networks = [name for record in (base, other) for name in t.cast(t.Iterable[str], record.get("network_types", ()))]
    result["network_types"] = [name for name in ("mesh", "lan", "public") if name in networks]
    return result


def _fill_gaps(first: object, second: object) -> dict[str, object]:
    """Return ``first`` with the entries that it leaves empty taken from ``second``."""
    second = second if isinstance(second, Mapping) else {}
    first = first if isinstance(first, Mapping) else {}
    keys = [*first, *(key for key in second if key not in first)]
    return {key: second.get(key) if first.get(key) in (None, []) else first[key] for key in keys}
