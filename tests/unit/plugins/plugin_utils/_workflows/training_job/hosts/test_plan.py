# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From a job and its nodes' answers to what is placed and started, without any side effect."""

from __future__ import annotations

import pathlib
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError, RefusedError
from ansible_collections.muster.training.plugins.module_utils._model.job import Checkpoints, Job, parse_job
from ansible_collections.muster.training.plugins.module_utils._model.job_checkpoints import refuse_other_ranks
from ansible_collections.muster.training.plugins.module_utils._model.node import Node
from ansible_collections.muster.training.plugins.module_utils._model.node_report import NodeReport
from ansible_collections.muster.training.plugins.plugin_utils._hosts import gang
from ansible_collections.muster.training.plugins.plugin_utils._hosts.node_client import NodeClient
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job import source as code_source
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.hosts import plan as hosts_plan

Dict = dict[str, t.Any]
VARS: Dict = {"a": {"ansible_host": "10.0.0.1"}, "b": {"ansible_host": "10.0.0.2"}, "c": {"ansible_host": "10.0.0.3"}}


def job(**changes: t.Any) -> Job:
    return parse_job({"name": "x", "nodes": 2, "script": "/t.py", **changes})


def answers(**changes: t.Any) -> dict[str, NodeReport]:
    """Return what the nodes answered to a preflight."""
    common: Dict = {
        "executable": "/usr/bin/python3",
        "interface": "eth0",
        "tools": {},
        "user": "uid 0",
        "free_bytes": 9,
    }
    training = {"executable": "/py", "version": "3.12", "packages": {}}
    return {
        name: NodeReport.from_dict(
            {**common, "training": training, "state_dir": f"/s/{name}", "missing": {"ab": 0}, **changes}
        )
        for name in ("a", "b")
    }


def test_the_first_hosts_of_the_play_are_the_nodes() -> None:
    found = hosts_plan.select_hosts(["c", "a", "b"], VARS, job())
    assert [(host.name, host.address) for host in found] == [("c", "10.0.0.3"), ("a", "10.0.0.1")]
    with pytest.raises(InputError, match="job.nodes: requests 4 nodes, the play has 3 hosts"):
        hosts_plan.select_hosts(["c", "a", "b"], VARS, job(nodes=4))


def test_a_cluster_is_not_a_host_of_a_job() -> None:
    variables = {"muster_node": {"kind": "cluster", "name": "cks"}}
    with pytest.raises(RefusedError, match=r"^cks is a Kubernetes cluster, not a machine\. Set placement\.backend"):
        hosts_plan.select_hosts(["cks"], {"cks": variables}, job(nodes=1))


@pytest.mark.parametrize(
    ("node", "price"),
    [({}, 0.0), ({"ownership": "rented"}, None), ({"ownership": "rented", "price_usd_per_hour": 2.5}, 2.5)],
)
def test_what_a_node_costs(node: Dict, price: float | None) -> None:
    assert hosts_plan.select_hosts(["a"], {"a": {"muster_node": node}}, job(nodes=1))[0].price_usd_per_hour == price


def test_the_interpreter_of_the_job_wins_over_the_hosts() -> None:
    variables = {"a": {"muster_training_python": "/env/py", "ansible_connection": "community.docker.docker"}}
    host = hosts_plan.select_hosts(["a"], variables, job(nodes=1))[0]
    assert (host.python, host.connection) == ("/env/py", "docker")
    assert hosts_plan.select_hosts(["a"], variables, job(nodes=1, python="/own"))[0].python == "/own"


@pytest.mark.parametrize(
    ("addresses", "lane"),
    [
        (["127.0.0.1", "127.0.0.2"], "loopback"),
        (["127.0.0.1", "10.0.0.1"], "network"),
        (["localhost"], "loopback"),
        (["n1"], "network"),
    ],
)
def test_all_on_this_machine_is_loopback(addresses: list[str], lane: str) -> None:
    found = [
        hosts_plan.TrainingHost(str(index), address, "py", None, "ssh", {}, Node(str(index)))
        for index, address in enumerate(addresses)
    ]
    assert hosts_plan.network_lane(found) == lane


def test_what_a_preflight_asks(tmp_path: pathlib.Path) -> None:
    found = hosts_plan.select_hosts(["a", "b"], VARS, job())
    port, nothing = code_source.rendezvous_port("x-1"), code_source.CodeSource((), None, None)
    wanted = job(env={"PYTHONPATH": "/lib", "TOKEN": "geheim"}, checkpoints={"path": "/mnt/c"}, requires={"numpy": ""})
    first, second = (
        hosts_plan.build_info_request(wanted, index, found[index], "x-1", nothing, {"owner": "me"}) for index in (0, 1)
    )
    assert (first["ports"], second["ports"]) == ([["10.0.0.1", port]], [])
    assert (first["reserve"], second["reserve"]) == ({"owner": "me"}, None)
    assert (first["end_left"], second["end_left"]) == ("me", "me")
    assert first["env"] == {"PYTHONPATH": "/lib"} and first["packages"] == ["torch", "numpy"]
    assert (first["files"], first["paths"], first["facts"]) == (["/t.py"], ["/mnt/c"], False)
    mpi = hosts_plan.build_info_request(job(launcher="mpi", gpus_per_node=1), 1, found[1], "x-1", nothing, None)
    assert (
        mpi["ports"] == [["10.0.0.2", port + 1], ["10.0.0.2", code_source.peer_port("x-1")]]
        and "sshd" in mpi["tools"]
        and mpi["facts"] is True
    )


def test_nodes_without_a_shared_folder_know_how_to_copy_from_each_other() -> None:
    found = hosts_plan.select_hosts(["a", "b"], VARS, job())
    nodes = hosts_plan.build_slots(found, answers(), "x-1", {})
    _plan, context = hosts_plan.build_launch(job(), nodes, "x-1", 4)
    peers = hosts_plan.build_peers(nodes, context, Checkpoints(format="dcp"), "geheim")
    port = code_source.peer_port("x-1")
    assert 16_000 <= port < 20_000 and port != code_source.peer_port("x-2")
    assert peers["b"] == {
        "key": "geheim",
        "format": "dcp",
        "nodes": {"a": ["10.0.0.1", port], "b": ["10.0.0.2", port]},
        "node": "b",
        "folder": f"{nodes[1].run_dir}/checkpoints",
        "copy_every_s": 30,
    }
    stored = hosts_plan.build_peers(nodes, context, Checkpoints(binding="store"), "geheim")
    assert stored["a"]["copy_every_s"] == 0, "the store has them"


def made(wanted: Job, secrets: tuple[dict[str, str], dict[str, bytes]] = ({}, {})) -> list[gang.GangMember]:
    found = hosts_plan.select_hosts(["a", "b"], VARS, wanted)
    nodes = hosts_plan.build_slots(found, answers(), "x-1", {})
    plan, context = hosts_plan.build_launch(wanted, nodes, "x-1", 4)
    remotes = [NodeClient(host.name, lambda command, data: (0, "", "")) for host in found]
    return hosts_plan.build_members(wanted, remotes, nodes, plan, context, answers(), secrets)


def test_a_gang_under_torchrun_meets_at_the_first_nodes_store() -> None:
    wanted = job(timeout_s=60, resources={"memory": "8Gi"}, restart={"wait_s": 77}, checkpoints={"path": "/mnt/c/"})
    first, second = made(wanted)
    port = code_source.rendezvous_port("x-1")
    assert first.store is not None and second.store is None and first.meet is None and first.reach is None
    assert first.store["listen"] == {"host": "10.0.0.1", "port": port} and first.store["policy"] == "store"
    assert first.spec["wait_for"] == second.spec["wait_for"] == {"host": "10.0.0.1", "port": port, "seconds": 77}
    assert second.reach is not None and (second.reach["host"], second.reach["port"]) == ("10.0.0.1", port)
    assert (first.spec["timeout_s"], first.spec["memory"], first.spec["generation"]) == (60, 8 << 30, 4)
    assert first.write == second.write == ("/mnt/c/x-1",) and first.missing == {"ab": 0}


def test_a_gang_without_a_store_meets_once_at_the_first_node() -> None:
    first, second = made(job(script=None, launcher="command", command=["x"]))
    assert (
        first.store is None and first.meet is not None and first.meet["peers"] == 1 and first.spec["wait_for"] is None
    )
    assert second.meet is None and second.reach is not None and second.write == ("/s/b/runs/x-1/checkpoints",)


def test_nodes_know_where_checkpoints_are_and_what_to_do_with_them() -> None:
    first, second = made(job(checkpoints={"path": "/mnt/c", "keep": 3, "format": "dcp"}))
    assert first.shared == second.shared == "/mnt/c/x-1"
    rules = {"format": "dcp", "keep": 3, "required": False, "resume": "auto", "shared": True, "folder": "/mnt/c/x-1"}
    rules |= {"apart": False, "ranks": [2], "other_ranks": refuse_other_ranks([2])}
    assert first.spec["checkpoints"] == {**rules, "first": True}
    assert second.spec["checkpoints"] == {**rules, "first": False}
    alone, _other = made(job(checkpoints={"path": "/mnt/c", "shared": False, "resume": "never"}))
    assert alone.spec["checkpoints"]["apart"] is True
    assert alone.shared is None and alone.spec["checkpoints"]["folder"] == "/mnt/c/x-1/attempt-4"
    assert made(job())[0].spec["checkpoints"]["folder"] == "/s/a/runs/x-1/checkpoints"


def test_a_checkpoint_is_looked_for_where_the_run_has_its_own() -> None:
    nothing = code_source.CodeSource((), None, None)
    for path, folder in (("/mnt/c", "/mnt/c/x-1"), (None, None)):
        wanted = job(checkpoints={"path": path, "resume": "required"})
        found = hosts_plan.select_hosts(["a", "b"], VARS, wanted)
        asked = hosts_plan.build_info_request(wanted, 1, found[1], "x-1", nothing, None)
        assert asked["checkpoints"] == {"folder": folder, "format": "auto", "apart": path is None}
    anew = job(checkpoints={"resume": "never"})
    assert hosts_plan.build_info_request(anew, 1, found[1], "x-1", nothing, None)["checkpoints"] is None


def test_secrets_are_beside_a_unit_and_never_in_it() -> None:
    first, _ = made(job(), ({"TOKEN": "geheim-42"}, {"CERT": b"geheim-43"}))
    assert "geheim" not in str(first.spec) and "geheim-42" in str(first.secrets)
    assert first.spec["secrets"] == "/s/a/runs/x-1/secrets/env.json"
    assert first.spec["secret_files"] == ["/s/a/runs/x-1/secrets/CERT"]
    assert first.spec["env"]["CERT_FILE"] == "/s/a/runs/x-1/secrets/CERT"
    assert made(job())[0].spec["secrets"] is None
