# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Two ids are of different clusters only where both are known and of one kind."""

from __future__ import annotations

import pytest

from ansible_collections.muster.training.plugins.module_utils._model import cluster_id


@pytest.mark.parametrize(
    ("uid", "authority", "expected"),
    [("u1", "ab12", "u1+ca:ab12"), ("u1", "", "u1"), ("", "ab12", "ca:ab12"), ("", "", "")],
)
def test_an_id_has_what_may_be_read(uid: str, authority: str, expected: str) -> None:
    assert cluster_id.build_cluster_id(uid, authority) == expected


@pytest.mark.parametrize(
    ("known", "seen", "other"),
    [
        ("a", "b", True),
        ("a", "a", False),
        (None, "b", False),
        ("a", "", False),
        ("ca:1", "ca:2", True),
        ("ca:1", "uid", False),
        ("ca:1", "uid+ca:2", True),
        ("ca:1", "uid+ca:1", False),
        ("uid+ca:1", "ca:2", True),
        ("uid+ca:1", "uid+ca:2", False),
        ("uid+ca:1", "other+ca:1", True),
        ("uid", "other+ca:1", True),
        ("uid", "uid+ca:1", False),
    ],
)
def test_ids_are_compared_by_kind(known: str | None, seen: str | None, other: bool) -> None:
    assert cluster_id.is_other_cluster(known, seen) is other
