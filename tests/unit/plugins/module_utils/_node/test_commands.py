# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Commands of the system: output, failures by their last line, time limits."""

from __future__ import annotations

import pathlib

import pytest

from ansible_collections.muster.training.plugins.module_utils._node.commands import read_unit, run


def test_the_output_is_returned() -> None:
    assert run("echo", "x") == "x\n"


def test_failures_are_told_by_the_last_line_of_the_command() -> None:
    with pytest.raises(OSError, match=r"^sh -c .* failed: because$"):
        run("sh", "-c", "echo first >&2; echo because >&2; exit 3")
    assert run("sh", "-c", "echo y; exit 3", check=False) == "y\n"


def test_a_unit_is_described_by_systemd(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "systemctl"
    program.write_text("#!/bin/sh\nprintf 'ActiveState=active\\nUnitFileState=enabled\\nNRestarts=3\\n'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    assert read_unit("x.service") == {"active": "active", "enabled": True, "restarts": 3}
    program.write_text("#!/bin/sh\nexit 1\n")
    assert read_unit("x.service") == {"active": "", "enabled": False, "restarts": 0}


def test_a_missing_command_and_one_without_an_end() -> None:
    with pytest.raises(OSError, match="^no-such-command is not there$"):
        run("no-such-command")
    assert run("no-such-command", check=False) == ""
    with pytest.raises(OSError, match=r"^sleep 60 did not end within 0 s$"):
        run("sleep", "60", limit_s=0.1)


def test_a_unit_of_systemd_is_read(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert read_unit("x.service") == {"active": "", "enabled": False, "restarts": 0}
    program = tmp_path / "systemctl"
    program.write_text("#!/bin/sh\necho ActiveState=active\necho UnitFileState=enabled\necho NRestarts=2\n")
    program.chmod(0o755)
    assert read_unit("x.service") == {"active": "active", "enabled": True, "restarts": 2}
