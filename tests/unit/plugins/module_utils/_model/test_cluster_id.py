# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Two ids are of different clusters only where both are known and of one kind."""

from __future__ import annotations

import pytest

from ansible_collections.muster.training.plugins.module_utils._model import cluster_id


def test_a_cluster_without_a_ca_has_no_id_by_it() -> None:
    assert cluster_id.name_by_authority("ab12") == "ca:ab12" and cluster_id.name_by_authority("") == ""


@pytest.mark.parametrize(
    ("known", "seen", "other"),
    [
        ("a", "b", True),
        ("a", "a", False),
        (None, "b", False),
        ("a", "", False),
        ("ca:1", "ca:2", True),
        ("ca:1", "uid", False),
    ],
)
def test_ids_are_compared_by_kind(known: str | None, seen: str | None, other: bool) -> None:
    assert cluster_id.is_other_cluster(known, seen) is other
