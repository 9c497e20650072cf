# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Machines from an ssh_config file, through Ansible itself."""

from __future__ import annotations

import pathlib
import typing as t
from collections.abc import Iterator

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.node import Node
from ansible_collections.muster.training.tests.support.run_inventory import Workbench

CONFIG = """
Host spark-1 spark-1.home
  HostName 192.168.1.31
  IdentityFile ~/.ssh/spark
Host spark-2
  HostName 100.64.0.32
  ProxyJump jump
Host spark-*
  User nv
Host jump
  HostName 203.0.113.9
Host github.com
  User git
"""
GROUPED = """
hosts: [spark-*]
groups: {muster_nodes: muster_reachable}
compose: {behind: ssh_config_proxy_jump}
keyed_groups: [{key: ssh_config_user, prefix: user}]
"""
CANARY = "pw-canary-55cd0e"


def source(bench: Workbench, case: str, config: str, more: str = "", name: str = "desk.ssh_config.yml") -> str:
    file = pathlib.Path(bench.source(f"{case}/config", config))
    file.chmod(0o600)
    return bench.source(f"{case}/{name}", f"plugin: muster.training.ssh_config\npath: {file}\n{more}")


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, dict[str, t.Any]]]:
    bench = Workbench(tmp_path_factory.mktemp("ssh"), "", {})
    bench.case("all", source(bench, "all", CONFIG))
    bench.case("grouped", source(bench, "grouped", CONFIG, GROUPED))
    static = bench.source("static/hosts.yml", "all: {hosts: {spark-1: {rack: 7}}}\n")
    bench.case("static", static, source(bench, "static", CONFIG))
    refused = {
        "none fits": (CONFIG, "hosts: [gpu-*]\n"),
        "empty": ("# nothing\n", ""),
        "line": ("Host a\n Portt 3\n", ""),
        "password": (f"Host a\n ProxyCommand sshpass -p {CANARY} ssh j\n", ""),
        "option": (CONFIG, "file: x\n"),
    }
    for case, (config, more) in refused.items():
        bench.case(case, source(bench, case, config, more))
    absent = "plugin: muster.training.ssh_config\npath: /none/config\n"
    bench.case("absent", bench.source("absent/x.ssh_config.yml", absent))
    yield bench.run(ANSIBLE_INVENTORY_ENABLED="muster.training.ssh_config,yaml")


def test_hosts_with_records(results: dict[str, dict[str, t.Any]]) -> None:
    hosts = results["all"]["hosts"]
    assert sorted(hosts) == ["jump", "spark-1", "spark-2"] and results["all"]["error"] is None
    first, second = hosts["spark-1"], hosts["spark-2"]
    assert (first["ansible_host"], first["ansible_port"], first["ansible_user"]) == ("192.168.1.31", 22, "nv")
    assert first["ansible_ssh_private_key_file"] == "~/.ssh/spark"
    assert first["ssh_config_aliases"] == ["spark-1", "spark-1.home"]
    assert "-o ProxyJump=jump" in second["ansible_ssh_common_args"]
    node = Node.from_dict(second["muster_node"])
    assert node.addresses.mesh[0].address == "100.64.0.32" and node.ssh.user == "nv" and second["muster_reachable"]


def test_groups_and_composed_variables(results: dict[str, dict[str, t.Any]]) -> None:
    found = results["grouped"]
    assert found["groups"]["muster_nodes"] == ["spark-1", "spark-2"] == found["groups"]["user_nv"]
    assert found["hosts"]["spark-2"]["behind"] == "jump"


def test_a_host_by_hand_and_of_the_file_are_one(results: dict[str, dict[str, t.Any]]) -> None:
    host = results["static"]["hosts"]["spark-1"]
    assert host["rack"] == 7 and host["ansible_host"] == "192.168.1.31"


REFUSED = {
    "none fits": "has no Host line with a name that fits gpu-*. Add one to the file, or correct hosts",
    "empty": "has no Host line with a name that fits *",
    "line": "config: line 2: Bad configuration option: portt. Correct that line",
    "password": "Host a: ProxyCommand has a password or token in its arguments. Use a key, or ProxyJump",
    "option": "file: is not an option of this plugin",
    "absent": "/none/config: cannot be read (no such file or directory). Name the file that ssh reads in path",
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_source_is_refused_in_one_line(results: dict[str, dict[str, t.Any]], case: str) -> None:
    found = results[case]
    assert "Completely failed to parse" in found["error"] and not found["hosts"]
    assert REFUSED[case] in " ".join(found["log"].split())
    assert CANARY not in found["log"] and "Traceback" not in found["log"]
