# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The variables of nodes by class: they survive the file, foreign content does not, and the job's own win."""

from __future__ import annotations

import typing as t

from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.module_utils._model.node_environment import (
    NodeClass,
    bind_to_interface,
    group_nodes,
    list_missing_files,
    list_overridden,
    read_environment,
    select_variables,
)

NODES = {name: {**bind_to_interface("ib0"), "NCCL_NET": "IB"} for name in ("a", "b")}
NODES["c"] = {**bind_to_interface("ib1"), "NCCL_IB_HCA": "=mlx5_0"}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["nodes", "variables", "NCCL_NET", "x"]), inner),
)


def test_nodes_of_one_class_are_written_once_and_read_back() -> None:
    classes = group_nodes({**NODES, "bare": {}})
    assert [item.nodes for item in classes] == [("a", "b"), ("c",)]
    assert read_environment({"environment": [item.to_dict() for item in classes]}) == NODES
    assert classes[1].describe() == "c: GLOO_SOCKET_IFNAME=ib1 NCCL_IB_HCA==mlx5_0 NCCL_SOCKET_IFNAME==ib1"
    many = NodeClass(tuple("abcdef"), {"NCCL_NET": "IB"})
    assert many.describe() == "a, b, c, d and 2 more: NCCL_NET=IB"


@given(JSON)
def test_any_content_is_read_as_text_or_not_at_all(value: t.Any) -> None:
    for variables in read_environment({"environment": value}).values():
        assert all(isinstance(text, str) and text.isprintable() for text in variables.values())


def test_an_entry_of_an_older_version_has_no_variables() -> None:
    assert read_environment({"island": "x", "nodes": ["a"]}) == {}
    bad = {"nodes": ["a"], "variables": {"LD_PRELOAD\n": "x", "NCCL_NET": 3, "lower": "x", "NCCL_X": "a\nb"}}
    assert read_environment({"environment": [bad]}) == {"a": {}}


def test_what_does_not_fit_where_the_job_runs_is_left_out() -> None:
    everywhere = select_variables(NODES, {}, own_network=True, rdma=True)
    assert everywhere == NODES
    pod = select_variables(NODES, {}, own_network=False, rdma=True)
    assert pod["a"] == {"NCCL_NET": "IB"} and pod["c"] == {"NCCL_IB_HCA": "=mlx5_0"}
    bare = select_variables(NODES, {}, own_network=True, rdma=False)
    assert bare["a"] == bind_to_interface("ib0") and bare["c"] == bind_to_interface("ib1")
    split = select_variables(NODES, {}, own_network=True, rdma=True, one_island=False)
    assert "NCCL_NET" not in split["a"] and split["c"] == NODES["c"]


def test_the_jobs_own_value_wins_and_a_difference_is_listed() -> None:
    own = {"NCCL_NET": "Socket", "GLOO_SOCKET_IFNAME": "ib0"}
    assert select_variables(NODES, own, own_network=True, rdma=True)["a"] == {"NCCL_SOCKET_IFNAME": "=ib0"}
    lines = list_overridden({"a": NODES["a"]}, own)
    assert lines == ("job.env sets NCCL_NET=Socket, and the verdict on the network IB: the job's value is used",)


def test_a_topology_file_is_where_the_processes_find_it() -> None:
    nodes = {name: {"NCCL_TOPO_FILE": "/opt/x/topo.xml"} for name in "abcde"} | {"f": {"NCCL_NET": "IB"}}
    assert select_variables(nodes, {}, own_network=True, rdma=False)["a"] == nodes["a"]
    found = select_variables(nodes, {}, own_network=True, rdma=True, find_file=lambda path: path.replace("opt", "mnt"))
    assert found["a"] == {"NCCL_TOPO_FILE": "/mnt/x/topo.xml"} and found["f"] == nodes["f"]
    assert select_variables(nodes, {}, own_network=True, rdma=True, find_file=lambda _path: None)["a"] == {}
    (line,) = list_missing_files(nodes, {}, lambda _path: None)
    assert line.startswith("pods on a, b, c, d do not have /opt/x/topo.xml") and "host_path: /opt/x," in line
    assert list_missing_files(nodes, {"NCCL_TOPO_FILE": "/own"}, lambda _path: None) == ()
    assert list_missing_files(nodes, {}, str) == ()
