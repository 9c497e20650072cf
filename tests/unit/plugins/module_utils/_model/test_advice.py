# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The numbers shown before launch."""

from __future__ import annotations

import typing as t

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.module_utils._model import advice
from ansible_collections.muster.training.plugins.module_utils._model.job import Job, parse_job


def job(nodes: int = 2, nproc: int = 4, **batch: t.Any) -> Job:
    return parse_job({"name": "x", "script": "/t.py", "nodes": nodes, "processes_per_node": nproc, "batch": batch})


def test_what_is_unknown_is_null() -> None:
    assert advice.derive_advice(job(), bandwidth_gb_s=None, prices_usd_per_hour=[1.5, None]) == {
        "world_size": 8,
        "processes_per_node": 4,
        "parallel": None,
        "effective_batch": None,
        "learning_rate_advice": None,
        "predicted_allreduce_s": None,
        "checkpoints": "checkpoints in each node's own run folder; what one node alone saved is copied to the others "
        "before a restart, and to the next node every 30 s",
        "price_usd_per_hour": None,
    }


def test_all_figures_of_a_job() -> None:
    known = job(per_rank=16, accumulation=2, base_learning_rate=0.1, base_batch=256, parameters=10**9)
    derived = advice.derive_advice(known, bandwidth_gb_s=10, prices_usd_per_hour=[1.5, 2])
    assert (derived["effective_batch"], derived["price_usd_per_hour"]) == (256, 3.5)
    assert derived["learning_rate_advice"] == pytest.approx(0.1)
    # 2 (8 - 1) / 8 of 4 GB at 10 GB/s.
    assert derived["predicted_allreduce_s"] == pytest.approx(0.7)


def test_one_rank_has_nothing_to_reduce_and_a_dead_network_no_prediction() -> None:
    assert advice.allreduce_seconds(job(1, 1, parameters=10), 10) is None
    assert advice.allreduce_seconds(job(parameters=10), 0) is None
    assert advice.learning_rate(job(per_rank=1, base_batch=1)) is None


@given(nodes=st.integers(1, 512), accumulation=st.integers(1, 64))
def test_batch_and_learning_rate_grow_with_the_world(nodes: int, accumulation: int) -> None:
    one = job(1, 1, per_rank=8, base_batch=8, base_learning_rate=0.01)
    many = job(nodes, 2, per_rank=8, accumulation=accumulation, base_batch=8, base_learning_rate=0.01)
    factor = nodes * 2 * accumulation
    assert advice.effective_batch(many) == factor * (advice.effective_batch(one) or 0)
    assert advice.learning_rate(many) == pytest.approx(factor * 0.01)
