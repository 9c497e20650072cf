# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Mistakes and questions of a first day with two machines, typed as they were: what is said then is true and helps."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys

import pytest

from ansible_collections.muster.training.tests.e2e.playbook_world import ROOT, World, assert_refused

SCRIPT = {"launcher": "torchrun", "command": [], "script": "train.py"}


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ("*", (f"package numpyy is not installed for {sys.executable}", f"{sys.executable} -m pip install 'numpyy')")),
        ("2.0", ("job.requires.numpyy: '2.0' is not a rule for a version", "Use >=, ==")),
    ],
)
def test_a_misspelt_requirement(world: World, rule: str, words: tuple[str, str]) -> None:
    """What is advised can be typed as it stands."""
    error = assert_refused(world, world.play(job=world.job(requires={"numpyy": rule})), words[0])
    assert words[1].rstrip(")") in error and "numpyy*" not in error, error


def test_a_package_that_is_there_meets_any_version(world: World) -> None:
    result = world.play(job=world.job(requires={"ansible-core": "*"}))
    assert result.code == 0, result.output


def test_debians_own_python_is_not_told_to_install_packages(world: World) -> None:
    """It was chosen because no interpreter is named, and it refuses to install any."""
    result = world.play(job=world.job(requires={"numpyy": "*"}), muster_training_python="/usr/bin/python3")
    error = assert_refused(world, result, "muster_training_python, python3 where it is not set", "bootstrap playbook")
    assert "pip install" not in error, error


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"args": [None]}, "job.args[0]: must be text or a number, not null"),
        ({"nodes": 3}, "job.nodes: requests 3 nodes, the play has 1 host. Add hosts or request fewer nodes"),
    ],
)
def test_what_is_there_is_called_by_its_name(world: World, values: dict[str, object], words: str) -> None:
    assert_refused(world, world.play(job=world.job(**values), args=("--limit", "node-1")), words)


def test_a_syntax_error_is_named_before_the_start(world: World, torch_python: str) -> None:
    code = world.root / "src"
    code.mkdir()
    (code / "train.py").write_text("import os\nprint(os.getpid()\n")
    job = world.job(**{**SCRIPT, "code": {"ref": str(code)}})
    result = world.play(job=job, muster_training_python=torch_python)
    assert_refused(world, result, "job.script: train.py, line 2: SyntaxError", "was never closed", "Correct the line")


def test_a_dead_host_among_three_is_left_out_as_advised(world: World) -> None:
    """Two of three hosts are enough for the job; the words of the error are a command that works."""
    hosts = {
        "a-dead-one": {"ansible_connection": "ssh", "ansible_host": "127.0.0.1", "ansible_port": 1},
        "b": {"ansible_connection": "local", "muster_address": "127.0.0.2"},
        "c": {"ansible_connection": "local", "muster_address": "127.0.0.3"},
    }
    local = {"muster_cluster": "local", "muster_node_state": f"{world.nodes}/{{{{ inventory_hostname }}}}"}
    world.inventory = world.root / "inventory.json"
    world.inventory.write_text(json.dumps({"muster_nodes": {"hosts": hosts, "vars": local}}))
    refused = world.play(job=world.job(), muster_node_state=None)
    error = assert_refused(world, refused, "a-dead-one", "Connection refused", "leave out what does not answer")
    (advice,) = re.findall(r"--limit '[^']+'", error)
    done = world.play(job=world.job(), args=shlex.split(advice), muster_node_state=None)
    assert done.code == 0 and world.record()["hosts"] == ["b", "c"], done.output


def test_a_task_on_all_hosts_at_once_is_told_what_it_lacks(world: World) -> None:
    task = {"muster.training.training_job": {"job": world.job(command=["sleep", "1"]), "cluster": "local",
                                             "run_id": world.run_id, "state_home": {"path": str(world.state)}}}  # fmt: skip
    place = world.root / "own.yml"
    place.write_text(json.dumps([{"hosts": "muster_nodes", "gather_facts": False, "tasks": [task]}]))
    words = ["-i", str(world.inventory), "-e", json.dumps(world.values()), str(place)]
    environment = world.environment({"ANSIBLE_FORKS": "2"})
    done = subprocess.run([world.program, *words], env=environment, capture_output=True, text=True, timeout=90)
    assert done.returncode != 0 and "task of your own needs run_once: true" in done.stdout, done.stdout


def test_check_mode_and_cancel_say_what_they_do(world: World) -> None:
    """The plan before, and what is left after."""
    job = world.rank_job()
    checked = world.play(job=job, args=("--check",))
    assert f"run {world.run_id} would be started on node-1, node-2: world size 2; nothing was changed" in checked.output
    assert world.play(job=job, training_job_wait=False).code == 0
    said = world.play("cancel").output
    # A second inventory has the interpreter of one node.
    again = f"ansible-playbook -i {world.inventory}"
    named = f" muster.training.train -e muster_run_id={world.run_id}"
    words = f"run {world.run_id} is stopped on node-1, node-2; it reported no checkpoint. Continue it (with -e "
    assert words in said and "-e muster_job" in said and f" as at its start): {again}" in said, said
    assert named in said, said


def test_a_command_that_is_printed_works_where_it_is_pasted(world: World) -> None:
    """The job is in a file of variables, as the guides have it, and the shell is in another folder."""
    place = world.root / "my job.yml"
    place.write_text(json.dumps(world.values(muster_job=world.rank_job(), training_job_wait=False)))
    words = ["-i", str(world.inventory), "-e", f"@{place.name}"]
    said = ""
    for playbook in ("train", "cancel"):
        argv = [world.program, *words, f"muster.training.{playbook}"]
        done = subprocess.run(
            argv, cwd=world.root, env=world.environment(), capture_output=True, text=True, timeout=90, check=False
        )
        said = done.stdout + done.stderr
        assert done.returncode == 0, said
    world.finish()
    (pasted,) = re.findall(r"Continue it: (ansible-playbook .+)", said)
    argv = [world.program, *shlex.split(pasted)[1:], "-e", "training_job_wait=true"]
    done = subprocess.run(
        argv, cwd="/", env=world.environment(), capture_output=True, text=True, timeout=90, check=False
    )
    assert done.returncode == 0 and world.record()["outcome"] == "succeeded", done.stdout + done.stderr


def test_much_code_is_said_to_be_sent(world: World) -> None:
    """What ``.gitignore`` and the usual rules leave out is not."""
    code = world.root / "src"
    (code / ".venv").mkdir(parents=True)
    (code / "data").mkdir()
    (code / ".gitignore").write_text("data/\n")
    for name in (".venv/left-out", "data/left-out", "weights"):
        (code / name).write_bytes(bytes(30_000_000))
    (code / "go.sh").write_text('[ -e weights ] && [ ! -e data ] && [ ! -e .venv ] && echo "only weights"\n')
    result = world.play(job=world.job(command=["sh", "go.sh"], code={"ref": str(code)}))
    assert result.code == 0 and "sending 60 MB of code and data to 2 nodes" in result.output, result.output


def test_code_is_relative_to_where_the_command_is_typed(world: World) -> None:
    """In a playbook of one's own too; the guide says so."""
    (world.root / "src").mkdir()
    (world.root / "src" / "go.sh").write_text("echo gone\n")
    own = world.root / "plays" / "own.yml"
    own.parent.mkdir()
    own.write_text("- ansible.builtin.import_playbook: muster.training.train\n")
    values = world.values(muster_job=world.job(command=["sh", "go.sh"], code={"ref": "./src"}))
    argv = [world.program, "-i", str(world.inventory), str(own), "-e", json.dumps(values)]
    done = subprocess.run(argv, cwd=world.root, env=world.environment(), capture_output=True, text=True, timeout=90)
    assert done.returncode == 0, done.stdout
    page = (ROOT / "docs" / "docsite" / "rst" / "guide_job.rst").read_text()
    assert "relative to the working directory" in " ".join(page.split())


def test_a_pattern_that_no_file_matches(world: World) -> None:
    """What can be fetched is named."""
    text = "mkdir -p $MUSTER_CHECKPOINT_DIR/step-7 && echo x > $MUSTER_CHECKPOINT_DIR/step-7/model.pt"
    assert world.play(job=world.job(command=["sh", "-c", text])).code == 0
    result = world.play("fetch", muster_fetch_paths=["*.safetensors"])
    assert result.code != 0 and len(result.errors) == 1, result.output
    assert "*.safetensors was not found" in result.errors[0], result.errors
    assert "Files there are step-7/model.pt (muster_fetch_paths)" in result.errors[0], result.errors
