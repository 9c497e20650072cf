# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The summary of a teardown: apart what ended, what was never seen to end, and sums that are not known."""

from __future__ import annotations

from ansible_collections.muster.training.plugins.module_utils._model.lease import LeaseProof, TeardownProof
from ansible_collections.muster.training.plugins.plugin_utils._provision.bill.known_bill import BillEntry
from ansible_collections.muster.training.plugins.plugin_utils._workflows.node_pool.absent_result import (
    build_result,
    summarise,
)

TIMES = ("2026-11-27T00:00:00Z", "2026-11-27T00:01:00Z")


def test_what_was_never_seen_to_end_is_no_proof() -> None:
    ended = LeaseProof("t1", "lab-h-0", "i-1", "acme", TIMES)
    unseen = LeaseProof("t2", "lab-h-1", "i-2", "acme", TIMES, "never_seen_to_end")
    said = summarise(TeardownProof(leases=(ended, unseen)))
    assert said.startswith("1 proved gone, 1 not in their account (never seen to end: lab-h-1), ")


def test_a_sum_with_an_unknown_part_is_not_known() -> None:
    hidden = {"name": "lab-h-0", "usd_per_hour": None, "problem": "in the ledger, not listed"}
    result = build_result(TeardownProof(within_lease=(hidden,)), False, [])
    assert result["within_lease_usd_per_hour"] is None and "lab-h-0: in the ledger, not listed" in result["summary"]


def test_check_mode_says_that_nothing_would_end() -> None:
    result = build_result(TeardownProof(), False, [], would_end=[])
    assert result["summary"].startswith("would end nothing, ") and result["would_end"] == []


def test_check_mode_s_sums_are_of_what_would_be_left() -> None:
    # What is past its lease bills until it is ended.
    due = BillEntry("due", "runpod", "lab-h-0", "instance", ("i-1",), "t1", 2.5, "2026-11-28T00:00:00Z")
    said = build_result(TeardownProof(), True, [], would_end=[due])["summary"]
    sums = "leaving 0 within their lease (0.00 USD per hour), 0 of others left alone, 0.00 USD per hour billing beyond a lease."
    assert said == f"would end lab-h-0 (2.50 USD per hour), {sums}"
