# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The guard of machines that are owned."""

from __future__ import annotations

from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.lease_guard import (
    LeaseGuard,
    NoLeases,
)


def test_owned_machines_end_no_run_and_are_not_deleted() -> None:
    guard: LeaseGuard = NoLeases()
    result: dict[str, object] = {"changed": True}
    assert guard.stop_reason() == "" and guard.delete_due(result, "failed") is result
    assert guard.price_of({"name": "gpu-1"}, 0.0) == 0.0 and guard.price_of({}, None) is None
