# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Choose inventory names: clean, unique, the same every time."""

from __future__ import annotations

import hashlib
import re
import typing as t
import unicodedata
from collections.abc import Collection, Iterable

LABEL_LIMIT = 63
NAME_LIMIT = 253

_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\Z")
# Ansible gives these names to its own machine, group or hosts.
_RESERVED = frozenset(("localhost", "all", "ungrouped", "ip6-localhost"))


def mark(text: str) -> str:
    """Return six hexadecimal digits that stand for ``text``."""
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:6]


def _with_mark(label: str, text: str) -> str:
    return f"{label[: LABEL_LIMIT - 7].rstrip('-') or 'node'}-{mark(text)}"


def clean_label(text: str) -> str:
    """Return ``text`` as an RFC 1123 label; where more than letter case is lost, a mark of the original is added."""
    if _LABEL.match(text) and text not in _RESERVED:
        return text
    lowered = text.lower()
    if _LABEL.match(lowered) and lowered not in _RESERVED:
        return lowered
    ascii_text = unicodedata.normalize("NFKD", lowered).encode("ascii", "ignore").decode()
    return _with_mark(re.sub(r"[^a-z0-9]+", "-", ascii_text).strip("-"), text)


def clean_name(text: str) -> str:
    """Return a name of one or more labels, as a ``hostname`` expression may give: dots stay where all labels fit."""
    lowered = text.lower().rstrip(".")
    if "." in lowered and len(lowered) <= NAME_LIMIT and all(_LABEL.match(part) for part in lowered.split(".")):
        return lowered
    return clean_label(text)


class NameRequest(t.NamedTuple):
    """A host to name: its id, the name it should have, and whether it is alive."""

    id: str
    name: str
    alive: bool


def assign_names(hosts: Iterable[NameRequest], taken: Collection[str]) -> tuple[dict[str, str], list[str]]:
    """Return the inventory name of each id, and the names that several hosts wanted.

    Of several with one name, one that is alive gets it (the lowest id, if more are), the others get a mark of their
    id; so do hosts whose name is in ``taken``. The outcome depends on the set of hosts, not on their order.
    """
    wanted: dict[str, list[NameRequest]] = {}
    for host in hosts:
        wanted.setdefault(host.name, []).append(host)
    names: dict[str, str] = {}
    shared: list[str] = []
    for name, group in wanted.items():
        if len(group) > 1 or name in taken:
            shared.append(name)
        ordered = sorted(group, key=lambda host: (not host.alive, host.id))
        if name not in taken:
            names[ordered.pop(0).id] = name
        for host in ordered:
            names[host.id] = _add_mark(name, host.id)
    return names, sorted(shared)


def _add_mark(name: str, ident: str) -> str:
    first, dot, rest = name.partition(".")
    return _with_mark(first, ident) + dot + rest
