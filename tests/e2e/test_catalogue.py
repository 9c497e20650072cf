# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A template of the catalogue is trained on hosts; nothing in its answers is evaluated."""

from __future__ import annotations

import pathlib
import subprocess
import sys

import yaml

from ansible_collections.muster.training.tests.e2e.playbook_world import World

PROGRAM = "import os; print('step=1 loss=0.5', os.environ['MODEL_NAME'])"
INPUTS = {"job_name": {"type": "text", "required": True}, "model": {"type": "text", "required": True}}
INPUTS |= {"nodes": {"type": "int", "default": 2, "max": 2}}


def commit_all(folder: pathlib.Path) -> str:
    identity = ["-c", "user.name=n", "-c", "user.email=e@example.org"]
    for argv in (["init", "--quiet"], ["add", "ours.yml"], ["commit", "--quiet", "-m", "one"]):
        subprocess.run(["git", *identity, *argv], cwd=folder, check=True)
    return subprocess.run(["git", "rev-parse", "HEAD"], cwd=folder, check=True, capture_output=True, text=True).stdout[
        :40
    ]


def test_a_template_is_trained(world: World, tmp_path: pathlib.Path) -> None:
    by_hand = world.job(command=[sys.executable, "-I", "-S", "-c", PROGRAM])
    body = {
        **by_hand,
        "name": "${inputs.job_name}",
        "nodes": "${inputs.nodes}",
        "env": {"MODEL_NAME": "${inputs.model}"},
    }
    template = {"name": "ours", "version": "1.2.0", "description": "A job", "inputs": INPUTS, "job": body}
    (tmp_path / "ours.yml").write_text(yaml.safe_dump(template), encoding="utf-8")
    chosen = {"muster_template": "ours", "muster_catalogue_paths": [str(tmp_path)]}
    answers = {"job_name": by_hand["name"], "model": "small"}

    place = tmp_path / "evaluated"
    bad = "{{ lookup('ansible.builtin.pipe', 'touch " + str(place) + "') }}"
    refused = world.play(**chosen, muster_inputs={**answers, "model": bad})
    assert refused.code != 0 and "muster_inputs.model: must not contain text that Jinja" in refused.output
    assert not place.exists() and "Traceback" not in refused.output

    done = world.play(**chosen, muster_inputs=answers)
    assert done.code == 0, done.output
    assert world.record()["outcome"] == "succeeded" and world.record()["job"]["env"]["MODEL_NAME"] == "small"
    template = world.record()["catalogue_template"]
    assert (template["name"], template["version"], len(template["digest"])) == ("ours", "1.2.0", 64)
    assert template["inputs"] == answers
    assert world.play(**chosen, muster_inputs=answers).changed == 0
    shown = world.play("status")
    assert f"ours 1.2.0 ({template['digest'][:12]})" in shown.output, shown.output

    # The template of a repository is the same one, and so is the run.
    source = {"git": f"file://{tmp_path}", "commit": commit_all(tmp_path)}
    of_git = {"muster_template": "ours", "muster_inputs": answers}
    again = world.play(**of_git, muster_catalogue_sources=[source])
    assert again.code == 0 and again.changed == 0, again.output
    moved = world.play(**of_git, muster_catalogue_sources=[{**source, "commit": "a" * 40}])
    assert moved.code != 0 and "muster_catalogue_sources[0].commit: file://" in moved.output, moved.output

    # The same job by hand is the same run.
    hand = world.play(job={**by_hand, "nodes": 2, "env": {"MODEL_NAME": "small"}})
    assert hand.code == 0 and hand.changed == 0, hand.output
