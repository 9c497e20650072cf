# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Expressions and values, for tests."""

from __future__ import annotations

from hypothesis import strategies as st

steps = st.sampled_from(
    ["", ".a", ".b", ".items", ".gone", "[0]", "[1]", "['a']", '["k-1"]', "[-1]", ".a.b", "[0].a", ".keys", " "]
)
