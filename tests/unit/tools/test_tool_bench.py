# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The runner of the benches: which parts it runs, and that a part that failed does not end the rest."""

from __future__ import annotations

import pathlib

import pytest

from ansible_collections.muster.training.tools import bench


@pytest.fixture
def parts(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three parts, of which the second has a gate that fails."""
    for name, status in (("first", 0), ("second", 1), ("third", 0)):
        (tmp_path / f"part_{name}.py").write_text(
            f"print('figures of {name}', flush=True)\nraise SystemExit({status})\n"
        )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(bench, "PARTS", {name: f"part_{name}" for name in ("first", "second", "third")})


@pytest.mark.parametrize(
    ("wanted", "status", "ran"),
    [([], 1, ["first", "second", "third"]), (["third"], 0, ["third"]), (["second", "first"], 1, ["second", "first"])],
)
@pytest.mark.usefixtures("parts")
def test_the_named_parts_run_to_their_ends(
    wanted: list[str], status: int, ran: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    assert bench.main(wanted) == status
    lines = capfd.readouterr().out.splitlines()
    assert [line.removeprefix("figures of ") for line in lines if line.startswith("figures of ")] == ran
    assert lines[-1] == ("bench: gates failed in second" if status else "bench: all gates passed")


def test_an_unknown_part_is_refused_with_the_names(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        bench.main(["hots"])
    assert "no part is called hots; there are: hosts, parser, apply, jobs" in capsys.readouterr().err


def test_each_part_is_a_module() -> None:
    root = pathlib.Path(bench.__file__).parents[1]
    assert [
        name for name in bench.PARTS.values() if not root.joinpath(*name.split(".")).with_suffix(".py").exists()
    ] == []
