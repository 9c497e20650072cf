# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""mpirun on the first node, an sshd of the run's own on each other one."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import shutil
import subprocess
import sys
import typing as t

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.module_utils._model.job import Job
from ansible_collections.muster.training.plugins.module_utils._model.object_names import unit_marker
from ansible_collections.muster.training.plugins.module_utils._node import rank as rank_module
from ansible_collections.muster.training.plugins.plugin_utils._hosts import ssh_keys
from ansible_collections.muster.training.plugins.plugin_utils._launch import mpi, registry
from ansible_collections.muster.training.tests.support import sshd
from ansible_collections.muster.training.tests.support.node_lab import read_lines
from ansible_collections.muster.training.tests.unit.plugins.plugin_utils._launch.gangs import RUN, job, slots

SSHD = shutil.which("sshd") or shutil.which("sshd", path="/usr/sbin:/sbin")


def training(**changes: t.Any) -> Job:
    return job(launcher="mpi", processes_per_node=2, **changes)


def settings_of(text: str) -> dict[str, str]:
    return dict(line.split(" ", 1) for line in text.splitlines())


def test_mpirun_starts_all_ranks_on_all_hosts() -> None:
    nodes = slots(3, tools={"mpirun": "/opt/mpirun", "sshd": "/opt/sshd"}, user="uid 0")
    plan = registry.launch(training(nodes=3), nodes, RUN)
    argv = plan.nodes[0].argv
    assert argv[:2] == ("/opt/mpirun", "--allow-run-as-root") and argv[argv.index("-np") + 1] == "6"
    assert plan.nodes[0].files["mpi_hosts"] == "10.0.0.1 slots=2\n10.0.0.2 slots=2\n10.0.0.3 slots=2\n"
    assert argv[argv.index("--hostfile") + 1] == "/state/a/runs/x-1/mpi_hosts"
    assert (plan.policy, plan.store, plan.keypair) == ("whole", None, True)
    assert "--allow-run-as-root" not in registry.launch(training(), slots(), RUN).nodes[0].argv
    assert registry.launch(training(nodes=1), slots(1), RUN).keypair is False


def test_both_open_mpi_families_are_told_and_the_hosts_key_is_pinned() -> None:
    env = registry.launch(training(), slots(), RUN).nodes[0].env
    assert env["OMPI_MCA_plm_rsh_args"] == env["PRTE_MCA_plm_ssh_args"]
    for part in ("-p 20001", "-i /state/a/runs/x-1/secrets/mpi_key", "StrictHostKeyChecking=yes", "BatchMode=yes"):
        assert part in env["OMPI_MCA_plm_rsh_args"]
    assert env["OMPI_MCA_btl_tcp_if_include"] == env["PRTE_MCA_prte_if_include"] == "eth0"
    known = mpi.known_hosts(slots(), RUN, "ssh-ed25519 AAAA")
    assert known == "[10.0.0.1]:20001 ssh-ed25519 AAAA\n[10.0.0.2]:20001 ssh-ed25519 AAAA\n"
    local = registry.launch(training(), slots(interface="lo"), RUN).nodes[0].env
    assert not [name for name in local if name.endswith("if_include")]


def test_the_sshd_of_a_run_accepts_its_key_only() -> None:
    node = registry.launch(training(), slots(), RUN).nodes[1]
    config = settings_of(node.files["mpi_sshd.conf"])
    assert node.argv == ("/usr/sbin/sshd", "-D", "-e", "-f", "/state/b/runs/x-1/mpi_sshd.conf")
    assert (config["Port"], config["ListenAddress"]) == ("20001", "10.0.0.2")
    assert config["AuthorizedKeysFile"] == "/state/b/runs/x-1/secrets/mpi_authorized_keys"
    assert {
        config[key] for key in ("PasswordAuthentication", "KbdInteractiveAuthentication", "AllowTcpForwarding")
    } == {"no"}
    mark = unit_marker("/state/b/runs/x-1", "agent")
    assert config["SetEnv"] == f"MUSTER_LOCAL_RUN=/state/b/runs/x-1 MUSTER_UNIT={mark}"


@pytest.mark.skipif(not SSHD or not shutil.which("ssh-keygen"), reason="OpenSSH is not installed")
def test_openssh_accepts_the_configuration(tmp_path: pathlib.Path) -> None:
    run = tmp_path / "run"
    (run / "secrets").mkdir(parents=True)
    pair = ssh_keys.generate_keys(run)
    (run / "secrets" / mpi.HOST_KEY_FILE).touch(0o600)
    (run / "secrets" / mpi.HOST_KEY_FILE).write_bytes(pair.host_private)
    node = registry.launch(
        training(), tuple(dataclasses.replace(slot, run_dir=str(run)) for slot in slots()), RUN
    ).nodes[1]
    (run / "mpi_sshd.conf").write_text(node.files["mpi_sshd.conf"])
    argv = [str(SSHD), "-t", "-f", str(run / "mpi_sshd.conf")]
    with sshd.folder():
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


TEXT = st.text(st.characters(min_codepoint=1, max_codepoint=0x2FF), max_size=12)


@settings(max_examples=8, deadline=None)
@given(value=TEXT, argument=TEXT)
def test_the_rank_script_hands_any_text_on(value: str, argument: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    run = tmp_path_factory.mktemp("run")
    program = "import json, os, sys; print(json.dumps([os.environ['MINE'], sys.argv[1], os.environ['MASTER_ADDR']]))"
    wanted = training(
        script=None, module=None, command=[sys.executable, "-c", program], args=[argument], env={"MINE": value}
    )
    nodes = tuple(dataclasses.replace(slot, run_dir=str(run), agent_python=sys.executable) for slot in slots())
    (run / "code").mkdir()
    text = registry.launch(wanted, nodes, RUN).nodes[1].files["mpi_rank.sh"]
    text = text.replace("{program}/muster_node/rank.py", str(pathlib.Path(rank_module.__file__)))
    (run / "mpi_rank.sh").write_text(text)
    env = {**os.environ, "OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_RANK": "1"}
    done = subprocess.run(["/bin/sh", str(run / "mpi_rank.sh")], capture_output=True, check=True, env=env)
    assert json.loads(done.stdout) == [value, argument, "10.0.0.1"]
    started = read_lines(run / "events.jsonl")[0]
    assert (started["rank"], started["world_size"], started["local_rank"], started["node"]) == (3, 4, 1, "b")


def test_a_rank_script_whose_folder_is_gone_says_so_by_its_code(tmp_path: pathlib.Path) -> None:
    text = registry.launch(training(), slots(), RUN).nodes[1].files["mpi_rank.sh"]
    (tmp_path / "rank.sh").write_text(text)
    assert subprocess.run(["/bin/sh", str(tmp_path / "rank.sh")], capture_output=True, check=False).returncode == 70
