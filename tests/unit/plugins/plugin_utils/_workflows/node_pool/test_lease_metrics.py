# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Figures of leases: machines that are leased, with what is known of them."""

from __future__ import annotations

import dataclasses
import pathlib

from ansible_collections.muster.training.plugins.module_utils._model.ledger import (
    LedgerEvent,
    SecondMachine,
    fold_events,
)
from ansible_collections.muster.training.plugins.plugin_utils._workflows.node_pool.lease_metrics import (
    describe_leases,
    write_leases,
)

ABOUT = {"schema": 1, "at": "2026-01-01T00:00:00Z", "cluster": "lab", "token": "1f2e3d4c", "event": "created",
         "resource": "instance", "provider": "lambda", "account": "ours", "pool": "h100", "name": "n-1", "id": "i-1",
         "deadline": "2026-01-01T10:00:00Z", "price_usd_per_hour": 2.99}  # fmt: skip


def test_what_is_leased_has_its_price_and_its_deadline() -> None:
    (lease,) = fold_events([LedgerEvent.from_dict(ABOUT)]).values()
    unknown = dataclasses.replace(lease, name="n-2", price_usd_per_hour=None, deadline=None)
    gone = dataclasses.replace(lease, name="n-3", state="verified")
    key = dataclasses.replace(lease, name="n-4", resource="auth_key")
    ended = SecondMachine("i-3", 9.0, 1.0)
    doubled = dataclasses.replace(lease, name="n-5", deadline=None, seconds=(SecondMachine("i-2", 3.0), ended))
    assert describe_leases([lease, unknown, gone, key, doubled], 5.0).splitlines() == [
        "muster_reaper_pass_seconds 5.000",
        'muster_lease_usd_per_hour{node="n-1",pool="h100",provider="lambda"} 2.99',
        'muster_lease_deadline_seconds{node="n-1",pool="h100",provider="lambda"} 1767261600.000',
        'muster_lease_usd_per_hour{node="n-5",pool="h100",provider="lambda"} 5.99',
    ]


def test_the_file_is_readable_for_all_and_a_problem_is_told(tmp_path: pathlib.Path) -> None:
    place = tmp_path / "leases.prom"
    assert write_leases(str(place), [], 5.0) == "" and place.stat().st_mode & 0o777 == 0o644
    assert "was not written" in write_leases(str(tmp_path / "none" / "x.prom"), [], 5.0)
