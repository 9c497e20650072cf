# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files of a report: replaced as a whole, readable by their owner only."""

from __future__ import annotations

import json
import pathlib
import shutil

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError
from ansible_collections.muster.training.plugins.plugin_utils._report.pages.files import (
    write_comparison,
    write_report,
    write_text,
)
from ansible_collections.muster.training.tests.unit.plugins.plugin_utils._report.runs import FIXTURES


def test_a_report_is_three_files_that_only_the_owner_reads(tmp_path: pathlib.Path) -> None:
    shutil.copytree(FIXTURES / "resumed", tmp_path / "run")
    paths = write_report(tmp_path / "run")
    assert {key: path.name for key, path in paths.items()} == {
        "json": "report.json",
        "junit": "junit.xml",
        "html": "report.html",
    }
    for path in paths.values():
        assert path.parent == tmp_path / "run"
        assert path.stat().st_mode & 0o777 == 0o600
    assert json.loads(paths["json"].read_text(encoding="utf-8"))["outcome"] == "succeeded"
    again = {path.name: path.read_bytes() for path in write_report(tmp_path / "run").values()}
    assert again == {path.name: path.read_bytes() for path in paths.values()}
    assert not [path for path in (tmp_path / "run").iterdir() if path.name.startswith(".")]


def test_a_report_can_go_elsewhere(tmp_path: pathlib.Path) -> None:
    paths = write_report(FIXTURES / "nulls", tmp_path / "deep" / "er")
    assert all(path.parent == tmp_path / "deep" / "er" for path in paths.values())
    compared = write_comparison([FIXTURES / "resumed", FIXTURES / "nulls"], tmp_path)
    assert json.loads(compared["json"].read_text(encoding="utf-8"))["schema"] == 1
    assert compared["html"].name == "compare.html"


def test_a_place_that_cannot_be_written_is_one_clear_error(tmp_path: pathlib.Path) -> None:
    (tmp_path / "file").write_text("x", encoding="utf-8")
    with pytest.raises(InputError, match=r"report: cannot write .*report\.json: .*Choose another folder"):
        write_report(FIXTURES / "nulls", tmp_path / "file")


def test_a_failed_write_leaves_the_old_file_and_no_rest(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    target = write_text(tmp_path / "a", "old")

    def full(_handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(InputError, match="No space left on device"):
        write_text(target, "new")
    assert target.read_text(encoding="utf-8") == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
