# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The commands in messages can be pasted into a shell as they stand."""

from __future__ import annotations

import dataclasses
import shlex

from ansible_collections.muster.training.plugins.module_utils._model import commands
from ansible_collections.muster.training.plugins.module_utils._model.job import parse_job, to_yaml_names
from ansible_collections.muster.training.plugins.module_utils._model.node_report import SeenCheckpoint
from ansible_collections.muster.training.plugins.module_utils._model.run_record import SavedCheckpoint
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared import run_record


def test_a_command_survives_a_shell() -> None:
    line = commands.playbook_command("train", "/home/me/my hosts/a.yml", muster_run_id="net-1")
    assert shlex.split(line) == [
        *("ansible-playbook", "-i", "/home/me/my hosts/a.yml"),
        *("muster.training.train", "-e", "muster_run_id=net-1"),
    ]
    assert commands.playbook_command("status") == "ansible-playbook -i INVENTORY muster.training.status"


def test_the_way_back_to_a_run_that_is_not_followed() -> None:
    job = to_yaml_names(parse_job({"name": "net", "script": "/t.py"}))
    record = dataclasses.replace(run_record.new_record("net-1", job, 1000.0), inventory="/i.yml", hosts=("a", "b"))
    line = commands.describe_left(record, commands.UNFOLLOWED, "default")
    assert line.startswith(
        "Run net-1 is no longer followed; it keeps running on a, b. Follow it: ansible-playbook -i /i."
    )
    assert line.endswith("stop it: ansible-playbook -i /i.yml muster.training.cancel -e muster_run_id=net-1")
    line = commands.describe_left(dataclasses.replace(record, hosts=()), commands.NOT_FOLLOWED, "lab")
    assert line.startswith("Run net-1 is not followed; it keeps running. Follow it: ansible-playbook")
    assert line.endswith("muster.training.cancel -e muster_run_id=net-1 -e muster_cluster=lab")


def test_a_command_repeats_what_its_run_was_started_with() -> None:
    options = ("-i", "/a b.yml", "-e", "@/job.yml")
    line = commands.playbook_command("train", "/other.yml", options, muster_run_id="net-1")
    assert line == "ansible-playbook -i '/a b.yml' -e @/job.yml muster.training.train -e muster_run_id=net-1"
    # Of an inventory that ansible.cfg names, the nodes know the file.
    line = commands.playbook_command("train", "/i.yml", ("-e", "@/job.yml"))
    assert line == "ansible-playbook -i /i.yml -e @/job.yml muster.training.train"


def test_what_a_cancel_leaves() -> None:
    job = to_yaml_names(parse_job({"name": "net", "script": "/t.py"}))
    record = dataclasses.replace(run_record.new_record("net-1", job, 1000.0), command_line=("-e", "@/job.yml"))
    assert "it reported no checkpoint" in commands.describe_cancelled(record, "")
    saved = dataclasses.replace(record, checkpoint=SavedCheckpoint(40, "/mnt/c/net-1"))
    assert "; its checkpoint of step 40 in /mnt/c/net-1 is as last reported, not looked for. Continue it: " in (
        commands.describe_cancelled(saved, "a, b")
    )
    for name, words in (
        ("ckpt-20.pt", "its newest checkpoint is ckpt-20.pt on b (it reported step 40 in /mnt/c/net-1 last)"),
        (None, "no node that was asked has a checkpoint in /c (it reported step 40 in /mnt/c/net-1 last)"),
    ):
        seen = {"a": SeenCheckpoint("/c"), "b": SeenCheckpoint("/c", name)}
        assert f"; {words}. Continue it: " in commands.describe_cancelled(saved, "a, b", seen)
    line = commands.describe_cancelled(saved, "a, b", {"a": SeenCheckpoint("/c", "ckpt-40.rank0.pt")})
    assert "run net-1 is stopped on a, b; its checkpoint of step 40 is kept in /mnt/c/net-1. Continue it: " in line
    assert line.endswith("-i INVENTORY -e @/job.yml muster.training.train -e muster_run_id=net-1")
    guessed = dataclasses.replace(saved, checkpoint=SavedCheckpoint(40, "/c", {"step_by": "the last printed"}))
    ends = (record, "no checkpoint"), (saved, "the checkpoint of step 40"), (guessed, "the checkpoint of about step 40")
    for one, until in ends:
        line = commands.describe_cancelled(one, "namespace x", other="her (ab)")
        assert f"; its newest checkpoint is not known here: until her (ab) took it over, it reported {until}. " in line


def test_what_a_start_was_given_by_value_is_named() -> None:
    job = to_yaml_names(parse_job({"name": "net", "script": "/t.py"}))
    plain = run_record.new_record("net-1", job, 1000.0)
    record = dataclasses.replace(plain, unrepeated=("job_name", "job_steps"))
    added = " (with -e job_name, -e job_steps as at its start): ansible-playbook "
    assert f"Continue it{added}" in commands.describe_cancelled(record, "a")
    assert f"Follow it{added}" in commands.describe_left(record, commands.UNFOLLOWED, "default")
    assert "unrepeated" in record.to_dict() and "unrepeated" not in plain.to_dict()
