# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""RDMA resources by their names, the network that their pods need, and the facts that a Node's annotation keeps."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.module_utils._model import rdma_resources as rules
from ansible_collections.muster.training.plugins.module_utils._model.rdma_resources import FACTS, HcaFacts

FULL = HcaFacts("roce", {"resourceName": "roce"}, ("mlx5_0",), ("eth1",), "=mlx5_0", 9000, exclusive=True)


@pytest.mark.parametrize(
    ("name", "is_rdma", "on_node"),
    [
        ("rdma/ib", True, False),
        ("rdma/roce", True, True),
        ("rdma/rdma_shared_device_a", True, True),
        ("nvidia.com/rdma_roce", True, False),
        ("nvidia.com/rdma/sriov_a", True, False),
        ("openshift.io/mlnx-rdma", True, False),
        ("nvidia.com/gpu", False, False),
        ("example.com/nordmart", False, False),
        ("vpc.amazonaws.com/efa", False, False),
    ],
)
def test_names_say_what_a_resource_is(name: str, is_rdma: bool, on_node: bool) -> None:
    assert rules.is_rdma_resource(name) is is_rdma
    assert rules.needs_node_network(name) is on_node
    # A network moves its device into the pod.
    assert rules.needs_node_network(name, ["team/net"]) is False
    assert rules.list_resources({name: "63", "cpu": "4", "rdma/none": "0"}) == ([name] if is_rdma else [])


def test_the_annotation_holds_the_facts() -> None:
    assert rules.read_annotation({FACTS: FULL.to_text()}) == FULL
    assert "\n" not in FULL.to_text() and rules.read_annotation({}) is None
    assert rules.list_resources(None) == []


@given(st.one_of(st.text(), st.sampled_from(["[]", "{}", '{"entry": {}}', '{"entry": [], "kind": "x"}', "null"])))
def test_text_of_others_is_no_facts(text: str) -> None:
    assert rules.read_annotation({FACTS: text}) is None
