# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the rules read from objects."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._kube.api.kinds import parse_time


@pytest.mark.parametrize(
    ("stamp", "wanted"),
    [
        ("2026-11-23T03:25:10Z", 1795404310.0),
        ("2026-11-23T03:25:10.250000Z", 1795404310.25),
        # Go writes up to nine digits; some credential helpers write a zone.
        ("2026-11-23T03:25:10.250000999Z", 1795404310.25),
        ("2026-11-23T04:25:10+01:00", 1795404310.0),
        ("soon", None),
        ("", None),
        (None, None),
        (1795404310, None),
    ],
)
def test_dates_of_objects(stamp: t.Any, wanted: float | None) -> None:
    assert parse_time(stamp) == wanted
