# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The commands in messages can be pasted into a shell as they stand."""

from __future__ import annotations

import shlex

from ansible_collections.muster.training.plugins.module_utils._model import commands


def test_a_command_survives_a_shell() -> None:
    line = commands.playbook_command("train", "/home/me/my hosts/a.yml", muster_run_id="net-1")
    assert shlex.split(line) == [
        *("ansible-playbook", "-i", "/home/me/my hosts/a.yml"),
        *("muster.training.train", "-e", "muster_run_id=net-1"),
    ]
    assert commands.playbook_command("status") == "ansible-playbook -i INVENTORY muster.training.status"


def test_the_way_back_to_a_run_that_is_not_followed() -> None:
    line = commands.describe_unfollowed("net-1", "/i.yml", "a, b")
    assert line.startswith("Stopped following run net-1; it keeps running on a, b. Follow it again: ansible-playbook")
    assert line.endswith("stop it: ansible-playbook -i /i.yml muster.training.cancel -e muster_run_id=net-1")


def test_what_a_cancel_leaves() -> None:
    line = commands.describe_cancelled("net-1", 40, "/mnt/c/net-1", "/i.yml", "a, b")
    assert "run net-1 is stopped on a, b; its checkpoint of step 40 is kept in /mnt/c/net-1. Continue it: " in line
    assert "it reported no checkpoint" in commands.describe_cancelled("net-1", None, None, None, "")
