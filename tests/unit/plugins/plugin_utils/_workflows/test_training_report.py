# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The report of a run and the comparison of several, written from the state directory."""

from __future__ import annotations

import importlib.util
import os
import pathlib
import shutil

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError, RefusedError
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared.state_dir import StateHome
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_report import (
    write_run_overview,
    write_run_report,
)

FIXTURES = pathlib.Path(__file__).parents[4] / "fixtures" / "report"


@pytest.fixture
def home(tmp_path: pathlib.Path) -> StateHome:
    home = StateHome({"path": str(tmp_path)}, "lab")
    for age, name in enumerate(("resumed", "nulls")):
        shutil.copytree(FIXTURES / name, home.run_folder(name))
        os.utime(home.run_folder(name) / "run.json", (1_000_000 - age, 1_000_000 - age))
    return home


def test_the_newest_run_is_reported_below_its_own_folder(home: StateHome) -> None:
    result = write_run_report(home, None, [], None, False)
    folder = home.run_folder("resumed") / "report"
    assert result == {
        "changed": True,
        "html": str(folder / "report.html"),
        "json": str(folder / "report.json"),
        "junit": str(folder / "junit.xml"),
    }
    assert sorted(path.name for path in folder.iterdir()) == ["junit.xml", "report.html", "report.json"]


def test_a_report_without_plots_is_a_success_with_a_warning(home: StateHome, monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == "matplotlib" else real(name))
    result = write_run_report(home, None, [], None, False)
    words = "report: plots need the Python package matplotlib where ansible-playbook runs: pip install matplotlib"
    assert result["warnings"] == [words] and pathlib.Path(str(result["html"])).exists()
    assert write_run_report(home, None, ["nulls", "resumed"], None, False)["warnings"] == [words]


def test_check_mode_writes_nothing(home: StateHome, tmp_path: pathlib.Path) -> None:
    out = tmp_path / "out"
    assert write_run_report(home, "nulls", [], str(out), True) == {"changed": True, "html": str(out / "report.html")}
    compared = write_run_report(home, None, ["nulls", "resumed"], str(out), True)
    assert compared["html"] == str(out / "compare.html") and not out.exists()


def test_a_check_predicts_exactly(home: StateHome) -> None:
    assert write_run_report(home, "nulls", [], None, True)["changed"] is True
    assert write_run_report(home, "nulls", [], None, False)["changed"] is True
    assert write_run_report(home, "nulls", [], None, True)["changed"] is False
    assert write_run_report(home, "nulls", [], None, False)["changed"] is False
    (home.run_folder("nulls") / "report" / "junit.xml").write_text("old")
    assert write_run_report(home, "nulls", [], None, True)["changed"] is True


def test_several_runs_are_compared_on_one_page(home: StateHome) -> None:
    result = write_run_report(home, None, ["nulls", "resumed"], None, False)
    page = pathlib.Path(str(result["html"]))
    assert page == home.folder / "compare" / "compare.html" and "2 runs compared" in page.read_text(encoding="utf-8")
    assert page.stat().st_mode & 0o777 == 0o600


def test_the_page_of_all_runs_is_in_the_folder_of_the_cluster(home: StateHome) -> None:
    place = home.folder / "runs.html"
    assert write_run_overview(home, [], 1, None, True) == {"changed": True, "html": str(place)} and not place.exists()
    assert write_run_overview(home, [], 1, None, False)["changed"] is True
    page = place.read_text(encoding="utf-8")
    assert "1 older run left out" in page and page.count("<tr") == 2
    assert write_run_overview(home, [], 1, None, False)["changed"] is False
    assert write_run_overview(home, [], 1, None, True)["changed"] is False
    write_run_report(home, "resumed", [], None, False)
    assert write_run_overview(home, [], 1, None, True)["changed"] is True, "its report can be opened now"


@pytest.mark.parametrize(("others", "limit"), [(["run_id"], 5), (["compare"], 5), ([], 0)])
def test_the_page_of_all_runs_names_no_single_run(home: StateHome, others: list[str], limit: int) -> None:
    with pytest.raises(InputError, match="goes without" if others else "must be 1 or more"):
        write_run_overview(home, others, limit, None, False)


def test_a_run_that_does_not_exist_is_refused_with_those_that_do(home: StateHome, tmp_path: pathlib.Path) -> None:
    with pytest.raises(RefusedError, match="run x-1 does not exist in .*/lab. The newest runs are: resumed, nulls"):
        write_run_report(home, "x-1", [], None, False)
    with pytest.raises(RefusedError, match="no run exists in .*/empty. Start one with the train playbook"):
        write_run_report(StateHome({"path": str(tmp_path)}, "empty"), None, [], None, False)
