# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The page of all variables: up to date, complete, and each variable with a meaning."""

from __future__ import annotations

import pytest

from ansible_collections.muster.training.tools import variables


def test_the_page_is_up_to_date() -> None:
    assert variables.main(["--check"]) == 0, "run python -m tools.variables"


def test_a_page_that_is_not_is_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(variables, "render", lambda: "something else")
    assert variables.main(["--check"]) == 1 and "out of date" in capsys.readouterr().err


def test_a_variable_without_a_meaning_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    found = variables.find_users()
    monkeypatch.setattr(variables, "find_users", lambda: {**found, "muster_new_thing": {"train"}})
    with pytest.raises(LookupError, match="muster_new_thing"):
        variables.render()


def test_what_was_missing_in_the_guides_is_there() -> None:
    page = variables.PAGE.read_text()
    for name in (
        "muster_extend",
        "muster_training_env",
        "muster_compare",
        "muster_drill",
        "muster_islands",
        "muster_notify",
    ):
        assert f"``{name}``" in page
    assert {"train", "site"} <= variables.find_users()["muster_extend"], "read by the role that train includes"
