# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Machines of Brev, through Ansible itself. Its client is a program of ours that prints what brev-cli's source says."""

from __future__ import annotations

import json
import pathlib
import typing as t
from collections.abc import Iterator

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.node import Node
from ansible_collections.muster.training.tests.support.run_inventory import Workbench

GPU = {
    "name": "gpu-1",
    "id": "6jda575vz",
    "status": "RUNNING",
    "build_status": "COMPLETED",
    "shell_status": "READY",
    "health_status": "HEALTHY",
    "instance_type": "gcp.h100x8",
    "instance_kind": "gpu",
    "gpu": "H100",
}
LISTED = {
    "workspaces": [
        GPU,
        {**GPU, "name": "off", "id": "7", "status": "STOPPED"},
        {**GPU, "name": "odd", "status": "NEW"},
    ],
    "nodes": [{"name": "spark", "org_id": "o", "status": "Connected"}],
}
CONFIG = """
Host gpu-1
  HostName 203.0.113.9
  User ubuntu
  Port 2222
  IdentityFile ~/.brev/brev.pem
  ProxyCommand brev proxy 6jda575vz
Host spark
  HostName 192.168.1.31
  User nv
"""


def source(bench: Workbench, case: str, printed: object = LISTED, code: int = 0, said: str = "", more: str = "") -> str:
    """Return a source whose client prints this, or fails with what it says."""
    text = printed if isinstance(printed, str) else json.dumps(printed)
    place = pathlib.Path(bench.source(f"{case}/listed.json", text))
    config = pathlib.Path(bench.source(f"{case}/config", CONFIG))
    config.chmod(0o600)
    program = pathlib.Path(bench.source(f"{case}/brev", ""))
    lines = f"#!/bin/sh\necho \"$@\" >> {program}.args\necho '{said}' >&2\ncat {place}\nexit {code}\n"
    program.write_text(lines)
    program.chmod(0o755)
    options = f"plugin: muster.training.brev\nbrev_binary: {program}\nssh_config: {config}\n{more}"
    return bench.source(f"{case}/x.brev.yml", options)


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Workbench:
    return Workbench(tmp_path_factory.mktemp("brev"), "", {})


@pytest.fixture(scope="module")
def results(bench: Workbench) -> Iterator[dict[str, dict[str, t.Any]]]:
    bench.case("all", source(bench, "all", more="groups: {muster_nodes: muster_reachable}\n"))
    bench.case("org", source(bench, "org", more="org: lab\n"))
    bench.case("empty", source(bench, "empty", {}))
    bench.case("logged out", source(bench, "out", "", 1, "not logged in"))
    bench.case("no json", source(bench, "text", "NAME STATUS"))
    bench.case("no name", source(bench, "name", {"workspaces": [{"id": "1"}]}))
    bench.case("strange name", source(bench, "strange", {"workspaces": [{"name": "-oProxyCommand=x"}]}))
    bench.case("no client", bench.source("none/x.brev.yml", "plugin: muster.training.brev\nbrev_binary: /none/brev\n"))
    yield bench.run(ANSIBLE_INVENTORY_ENABLED="muster.training.brev")


def test_instances_and_own_nodes_with_records(results: dict[str, dict[str, t.Any]]) -> None:
    hosts = results["all"]["hosts"]
    assert sorted(hosts) == ["gpu-1", "odd", "off", "spark"] and results["all"]["error"] is None
    first, spark = hosts["gpu-1"], hosts["spark"]
    assert (first["ansible_host"], first["ansible_port"], first["ansible_user"]) == ("203.0.113.9", 2222, "ubuntu")
    assert first["ansible_ssh_private_key_file"] == "~/.brev/brev.pem"
    assert "ProxyCommand=brev proxy 6jda575vz" in first["ansible_ssh_common_args"]
    node = Node.from_dict(first["muster_node"])
    assert (node.ownership, node.provider, node.state, node.gpu.model) == ("rented", "brev", "running", "H100")
    assert node.gpu.count is None and first["muster_node"]["price_usd_per_hour"] is None, "the client does not say it"
    assert first["brev_instance_type"] == "gcp.h100x8" == first["muster_node"]["product"]
    assert Node.from_dict(spark["muster_node"]).ownership == "owned" and spark["brev_kind"] == "node"
    assert results["all"]["groups"]["muster_nodes"] == ["gpu-1", "spark"]


def test_what_does_not_run_or_is_not_in_the_file_is_not_reachable(results: dict[str, dict[str, t.Any]]) -> None:
    hosts = results["all"]["hosts"]
    assert hosts["off"]["muster_node"]["state"] == "stopped" and hosts["odd"]["muster_node"]["state"] == "unknown"
    assert not hosts["off"]["muster_reachable"] and "ansible_host" not in hosts["odd"]


def test_the_client_is_asked_for_the_listing_alone(results: dict[str, dict[str, t.Any]], bench: Workbench) -> None:
    assert results["org"]["error"] is None and results["empty"]["hosts"] == {}
    root = pathlib.Path(bench.source("here", "")).parent
    assert (root / "all" / "brev.args").read_text().splitlines() == ["ls --json"]
    assert (root / "org" / "brev.args").read_text().splitlines() == ["ls --json --org lab"]


REFUSED = {
    "logged out": "brev ls: not logged in. Log in with brev login",
    "no json": "brev ls --json: prints no JSON. Update Brev's client",
    "no name": "brev ls --json: workspaces[0] has no name",
    "strange name": "workspaces[0]: its name is not that of a host",
    "no client": "brev ls: no program '/none/brev'. Install Brev's client, or set brev_binary",
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_source_is_refused_in_one_line(results: dict[str, dict[str, t.Any]], case: str) -> None:
    found = results[case]
    assert "Completely failed to parse" in found["error"] and not found["hosts"]
    assert REFUSED[case] in " ".join(found["log"].split()) and "Traceback" not in found["log"]
