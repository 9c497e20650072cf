# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The causes of running jobs beside those of logs."""

from __future__ import annotations

from ansible_collections.muster.training.plugins.plugin_utils._fabric.diagnosis.live_causes import LIVE_CAUSES
from ansible_collections.muster.training.plugins.plugin_utils._fabric.verdict.cause_table import CAUSES


def test_no_code_stands_in_both_tables() -> None:
    assert not set(LIVE_CAUSES) & set(CAUSES)
