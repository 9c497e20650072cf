# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files of a state home in a store: what one controller wrote, the next one has; nothing is written twice."""

from __future__ import annotations

import json
import pathlib
import time

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import MusterError, RefusedError
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared.state_sync import INDEX, StateSync
from ansible_collections.muster.training.tests.support.memory_state import MemoryState


def work(
    store: MemoryState, folder: pathlib.Path, files: dict[str, str | None] | None = None, **options: bool
) -> StateSync:
    """Change files as an action would; None deletes."""
    with StateSync(store, folder, is_read_only=options.get("check", False)) as state:
        for name, text in (files or {}).items():
            place = folder / name
            place.parent.mkdir(parents=True, exist_ok=True)
            if text is None:
                place.unlink()
            else:
                place.write_text(text)
    return state


def test_the_next_controller_has_what_one_wrote(tmp_path: pathlib.Path) -> None:
    store = MemoryState()
    work(store, tmp_path / "a", {"fabric.json": "{}", "runs/r1/run.json": "1", "runs/r1/logs/n.log": "long"})
    work(store, tmp_path / "b")
    assert (tmp_path / "b/fabric.json").read_text() == "{}" and (tmp_path / "b/runs/r1/run.json").read_text() == "1"
    assert not (tmp_path / "b/runs/r1/logs").exists()
    assert (tmp_path / "b/runs/r1/run.json").stat().st_mode & 0o077 == 0


def test_nothing_changed_is_nothing_written(tmp_path: pathlib.Path) -> None:
    store = MemoryState()
    work(store, tmp_path, {"fabric.json": "{}"})
    before = store.writes
    work(store, tmp_path)
    work(store, tmp_path / "other")
    assert store.writes == before


def test_old_contents_go(tmp_path: pathlib.Path) -> None:
    store = MemoryState()
    for text in ("1", "2", "3"):
        work(store, tmp_path, {"fabric.json": text})
    assert len([name for name in store.items if name.startswith("files/")]) == 1


def test_a_deleted_file_is_gone_everywhere(tmp_path: pathlib.Path) -> None:
    store = MemoryState()
    work(store, tmp_path / "a", {"bindings/s.json": "1", "fabric.json": "2"})
    work(store, tmp_path / "b")
    work(store, tmp_path / "a", {"bindings/s.json": None})
    work(store, tmp_path / "b")
    assert not (tmp_path / "b/bindings/s.json").exists() and (tmp_path / "b/fabric.json").exists()


def test_two_controllers_that_change_different_files_lose_nothing(tmp_path: pathlib.Path) -> None:
    store = MemoryState()
    with StateSync(store, tmp_path / "a", is_read_only=False):
        (tmp_path / "a/fabric.json").write_text("a")
        work(store, tmp_path / "b", {"site.json": "b"})
    work(store, tmp_path / "c")
    assert (tmp_path / "c/fabric.json").read_text() == "a" and (tmp_path / "c/site.json").read_text() == "b"


def test_what_could_not_be_stored_is_said_and_stored_by_the_next_call(tmp_path: pathlib.Path) -> None:
    store = MemoryState()
    with StateSync(store, tmp_path / "a", is_read_only=False) as state:
        (tmp_path / "a/fabric.json").write_text("a")
        store.away = True
    assert "on this controller alone" in state.problems[0]
    store.away = False
    work(store, tmp_path / "a")
    work(store, tmp_path / "b")
    assert (tmp_path / "b/fabric.json").read_text() == "a"


def test_a_long_action_stores_while_it_works(tmp_path: pathlib.Path) -> None:
    store = MemoryState()
    with StateSync(store, tmp_path, is_read_only=False, push_s=0.01):
        (tmp_path / "fabric.json").write_text("a")
        end = time.monotonic() + 10
        while INDEX not in store.items:
            assert time.monotonic() < end
            time.sleep(0.005)


def test_check_mode_stores_nothing(tmp_path: pathlib.Path) -> None:
    store = MemoryState()
    work(store, tmp_path, {"fabric.json": "a"}, check=True)
    assert store.writes == 0


def test_a_store_that_cannot_be_read_stops_the_action(tmp_path: pathlib.Path) -> None:
    with pytest.raises(MusterError, match="does not answer"):
        work(MemoryState(away=True), tmp_path)
    with pytest.raises(RefusedError, match="the index in .* is damaged"):
        work(MemoryState(items={INDEX: (b"<html>", "1")}), tmp_path)


def test_an_ending_uses_the_copy_that_is_here(tmp_path: pathlib.Path) -> None:
    store = MemoryState(away=True)
    with StateSync(store, tmp_path / "a", is_read_only=False, may_be_away=True) as state:
        assert "does not answer" in state.problems[0]
        store.away = False
    assert store.items == {}, "an old copy replaces nothing"


def test_an_index_names_no_place_outside(tmp_path: pathlib.Path) -> None:
    entry = {"sha256": "0" * 64, "item": "files/x"}
    index = dict.fromkeys(("../x.json", "/etc/x.json", "runs/../../run.json", "runs/r/logs/n.log"), entry)
    store = MemoryState(items={INDEX: (json.dumps(index).encode(), "1"), "files/x": (b"x", "1")})
    work(store, tmp_path / "home")
    assert sorted(path.name for path in tmp_path.rglob("*") if path.is_file()) == [".stored.json"]
