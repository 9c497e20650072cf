# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lines before a start: the figures that are known, and the variables of each class of nodes."""

from __future__ import annotations

from ansible_collections.muster.training.plugins.module_utils._model.network_plan import NetworkPlan
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.announce import announce
from ansible_collections.muster.training.tests.support.run_world import Said

FIGURES = {"effective_batch": 64, "learning_rate_advice": None, "price_usd_per_hour": 0.0, "predicted_allreduce_s": 0.5}


def test_a_start_says_its_figures_and_the_variables_of_its_nodes() -> None:
    said = Said()
    network = NetworkPlan(environment={"a": {"NCCL_NET": "IB"}, "b": {"NCCL_NET": "IB"}})
    announce(said, ["run r-1: 2 pods"], FIGURES, network, running=False)
    first = "run r-1: 2 pods · effective batch 64 · 0.5 s per all-reduce of all gradients"
    assert said.lines == [first, "network variables of a, b: NCCL_NET=IB"]


def test_a_run_that_is_followed_got_its_variables_at_its_start() -> None:
    said = Said()
    announce(said, ["run r-1"], {}, NetworkPlan(environment={"a": {"NCCL_NET": "IB"}}), running=True)
    assert said.lines == ["run r-1 · already running, following it"]
