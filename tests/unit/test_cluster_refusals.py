# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which test shows what is said to input from which no cluster can be made: each named one exists."""

from __future__ import annotations

import pathlib

import pytest

TESTS = pathlib.Path(__file__).resolve().parents[1]
CLUSTER, MODEL = "lab/test_k3s_cluster.py", "unit/plugins/module_utils/_model"
NODE = "unit/plugins/module_utils/_node/test_host_k3s.py"
REFUSED = "test_what_makes_no_cluster_is_refused_in_one_line_and_changes_nothing"
UNABLE = "test_a_machine_that_cannot_take_part_is_named_and_nothing_is_changed"
# Input: file, test, and a word of the case where the test has several.
INPUTS = {
    "two machines of one name": (CLUSTER, REFUSED, "are all the node lab-1"),
    "two machines of one machine id": (CLUSTER, "test_two_machines_with_one_machine_id_are_refused", ""),
    "wrong token": (CLUSTER, "test_a_wrong_token_is_refused_before_the_agent_is_touched", ""),
    "expired token": (NODE, "test_a_token_that_the_server_will_not_take_is_explained", "is expired or does not exist"),
    "interface that is not there": (CLUSTER, REFUSED, "has no interface eth7"),
    "K3s older than the mesh needs": (
        f"{MODEL}/test_cluster_checks.py",
        "test_what_was_asked_of_a_machine_that_does_not_have_it",
        "loses the network between pods",
    ),
    "foreign K3s": (CLUSTER, "test_somebody_elses_k3s_is_refused", ""),
    "half-installed K3s": (CLUSTER, UNABLE, "touch /usr/local/bin/k3s"),
    "half-installed Docker": (CLUSTER, UNABLE, "half-installed packages: docker-ce"),
    "half-installed driver": (
        f"{MODEL}/test_cluster_checks.py",
        "test_what_is_on_a_machine_and_keeps_it_out",
        "driver is half-installed",
    ),
    "overlapping ranges": (CLUSTER, REFUSED, "overlaps k3s_cluster_cidr"),
    "read-only root": (CLUSTER, UNABLE, "/etc is read-only"),
    "full disk in the middle": (CLUSTER, "test_a_disk_that_is_full_in_the_middle_is_told_in_one_line", ""),
    "clock off": (
        f"{MODEL}/test_cluster_checks.py",
        "test_what_was_asked_of_a_machine_that_does_not_have_it",
        "the clock is 61 s ahead",
    ),
    "container without /dev/kmsg": (CLUSTER, UNABLE, "mv /dev/kmsg"),
    "8472 closed": (CLUSTER, "test_vxlan_that_does_not_pass_is_named_and_nothing_is_changed", ""),
    "agent that dies while joining": (
        CLUSTER,
        "test_an_agent_that_dies_while_it_joins_is_named_and_joins_when_it_is_back",
        "",
    ),
    "server's CA changed": (
        f"{MODEL}/test_k3s.py",
        "test_a_machine_that_cannot_be_in_it_is_named",
        "another CA than the server has now",
    ),
    "--limit without the server": (CLUSTER, "test_a_limit_without_the_server_is_refused", ""),
    "sudo with password": (CLUSTER, UNABLE, "Missing sudo password"),
    "even number of servers": (CLUSTER, REFUSED, "have no majority"),
    "inventory without a server": (CLUSTER, REFUSED, "the inventory has no server"),
}


@pytest.mark.parametrize(("file", "test", "case"), INPUTS.values(), ids=INPUTS)
def test_each_bad_input_has_a_test(file: str, test: str, case: str) -> None:
    text = (TESTS / file).read_text()
    assert f"def {test}(" in text and case in text
