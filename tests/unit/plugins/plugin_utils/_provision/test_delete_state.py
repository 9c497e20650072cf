# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The values of a deletion: when the absence of a lease is proved and when its deletion has ended."""

from __future__ import annotations

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.ledger import Lease
from ansible_collections.muster.training.plugins.plugin_utils._provision.delete_state import Termination

LEASE = Lease(
    token="1f2e3d4c",
    resource="cluster",
    cluster="lab",
    pool="h100",
    name="lab-h100-0-1f2e3d4c",
    provider="lambda",
    account="acc1",
    state="joined",
    settled=True,
    intent_at=0.0,
    changed_at=0.0,
)


def test_a_lease_is_known_by_its_token_and_its_resource() -> None:
    assert Termination(LEASE).key == ("1f2e3d4c", "cluster")


@pytest.mark.parametrize(
    ("absent_at", "proved"), [((), False), ((10.0,), False), ((10.0, 15.0), True), ((10.0, 15.0, 20.0), True)]
)
def test_two_absences_prove_a_deletion(absent_at: tuple[float, ...], proved: bool) -> None:
    termination = Termination(LEASE, absent_at=absent_at)
    assert termination.is_verified is proved and termination.is_finished is proved


def test_a_permanent_problem_ends_a_deletion_and_proves_nothing() -> None:
    termination = Termination(LEASE, absent_at=(10.0,), problem="another account", is_permanent=True)
    assert termination.is_finished and not termination.is_verified


def test_a_problem_that_may_pass_does_not_end_a_deletion() -> None:
    assert not Termination(LEASE, problem="the API does not answer").is_finished
