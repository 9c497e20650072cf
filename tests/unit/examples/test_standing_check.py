# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The examples of a standing check name a playbook and a variable that exist, and systemd understands them."""

from __future__ import annotations

import configparser
import pathlib
import shutil
import subprocess

import pytest
import yaml

ROOT = pathlib.Path(__file__).parents[3]
FOLDER = ROOT / "examples" / "standing_check"


def unit(name: str) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(strict=True, interpolation=None)
    parser.optionxform = str  # type: ignore[method-assign,assignment]
    parser.read_string((FOLDER / name).read_text())
    return parser


def test_the_service_runs_the_playbook_with_the_role_s_variable() -> None:
    command = unit("muster-fabric-check.service")["Service"]["ExecStart"]
    playbook = next(word for word in command.split() if word.startswith("muster.training."))
    assert (ROOT / "playbooks" / f"{playbook.removeprefix('muster.training.')}.yml").exists()
    variable = command.rpartition("-e ")[2].partition("=")[0]
    assert variable in (ROOT / "roles" / "fabric_verify" / "defaults" / "main.yml").read_text()


def test_the_timer_s_calendar_is_valid() -> None:
    calendar = unit("muster-fabric-check.timer")["Timer"]["OnCalendar"]
    if not shutil.which("systemd-analyze"):
        pytest.skip("systemd-analyze is not installed")
    done = subprocess.run(["systemd-analyze", "calendar", calendar], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_schedule_of_awx_sets_the_same_variable() -> None:
    body = yaml.safe_load((FOLDER / "awx_schedule.yml").read_text())[0]["tasks"][0]["ansible.builtin.uri"]["body"]
    assert body["extra_data"]["muster_fabric_idle_only"] is True and "FREQ=DAILY" in body["rrule"]
    defaults = (ROOT / "roles" / "fabric_verify" / "defaults" / "main.yml").read_text()
    assert all(name in defaults for name in body["extra_data"])
