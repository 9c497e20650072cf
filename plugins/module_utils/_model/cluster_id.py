# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which cluster something is of: the uid of its namespace kube-system and its CA, each as far as it may be read.

A member of a team sees the CA alone; an administrator sees both, so that what one of them recorded can be compared with
what the other one sees.
"""

from __future__ import annotations

import typing as t

_BY_CA: t.Final = "ca:"
_AND: t.Final = "+"


def build_cluster_id(uid: str, authority: str) -> str:
    """Return a cluster's id, such as ``UID+ca:DIGEST``; empty where neither is known.

    :param uid: of its namespace kube-system. :param authority: the SHA-256 of its CA, empty for one without its own.
    """
    return _AND.join(filter(None, (uid, authority and f"{_BY_CA}{authority}")))


def is_other_cluster(known: str | None, seen: str | None) -> bool:
    """Return whether two ids are of different clusters. The uid decides where both have it: a CA may be renewed.

    Ids without a kind in common may be of one cluster.
    """
    pair = _find_comparable(known, seen)
    return pair is not None and pair[0] != pair[1]


def is_same_cluster(known: str | None, seen: str | None) -> bool:
    """Return whether two ids are proven to be of one cluster."""
    pair = _find_comparable(known, seen)
    return pair is not None and pair[0] == pair[1]


def _find_comparable(known: str | None, seen: str | None) -> tuple[str, str] | None:
    """Return the uids, else the CAs, of two ids, None where they have no kind in common."""
    pairs = zip(_split(known or ""), _split(seen or ""), strict=True)
    return next(((mine, other) for mine, other in pairs if mine and other), None)


def _split(cluster_id: str) -> tuple[str, str]:
    """Return the uid and the CA of an id."""
    parts = cluster_id.split(_AND)
    by_ca = [part for part in parts if part.startswith(_BY_CA)]
    return "".join(part for part in parts if part not in by_ca), "".join(by_ca)
