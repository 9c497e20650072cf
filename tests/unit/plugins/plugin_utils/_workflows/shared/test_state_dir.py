# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller's state: where it is, whose it is, and that one process at a time follows a run."""

from __future__ import annotations

import json
import os
import pathlib
import threading
import typing as t

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError, RefusedError
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared.state_dir import (
    OWN_CLUSTER,
    StateHome,
    default_root,
    load_record,
    names_cluster,
    read_record,
    require_recorded_here,
)


def home(root: pathlib.Path, cluster: str = "lab") -> StateHome:
    return StateHome({"path": str(root)}, cluster)


def test_the_default_place_follows_xdg(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/xdg")
    assert default_root() == pathlib.Path("/xdg/muster") and StateHome(None, "lab").folder == pathlib.Path(
        "/xdg/muster/lab"
    )
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", "/home/me")
    assert StateHome({"store": "local"}, "lab").root == pathlib.Path("/home/me/.local/state/muster")


@pytest.mark.parametrize(
    ("setting", "cluster", "option"),
    [
        ({"store": "s3"}, "lab", "muster_state.s3"),
        ({"store": "disk"}, "lab", "muster_state.store"),
        ({"pth": "/x"}, "lab", "muster_state.pth"),
        ("/x", "lab", "muster_state"),
        ({}, "../lab", "muster_cluster"),
        ({}, "", "muster_cluster"),
    ],
)
def test_what_is_no_state_home_is_refused(setting: t.Any, cluster: str, option: str) -> None:
    with pytest.raises(InputError) as caught:
        StateHome(setting, cluster)
    assert caught.value.option == option


@pytest.mark.parametrize("name", ["../up", "/etc", "a/b", "A", "", "a" * 64, "a b"])
def test_a_runs_name_names_no_other_folder(tmp_path: pathlib.Path, name: str) -> None:
    with pytest.raises(InputError, match="^run_id: "):
        home(tmp_path).run_folder(name)


def test_runs_are_those_with_a_record_the_newest_first(tmp_path: pathlib.Path) -> None:
    found = home(tmp_path)
    assert found.runs() == []
    for age, name in enumerate(("new", "middle", "old")):
        folder = found.run_folder(name)
        folder.mkdir(parents=True)
        (folder / "run.json").write_text("{}")
        os.utime(folder / "run.json", (1000 - age, 1000 - age))
    found.run_folder("only-a-lock").mkdir()
    assert [path.name for path in found.runs()] == ["new", "middle", "old"]


def test_the_owner_is_made_once_and_only_when_something_is_written(tmp_path: pathlib.Path) -> None:
    found = home(tmp_path / "state")
    assert found.owner(create=False)["owner"] == "" and not (tmp_path / "state").exists()
    made = found.owner(create=True)
    assert len(made["owner"]) == 32 and str(tmp_path / "state") in made["controller"]
    assert home(tmp_path / "state", "other").owner(create=True) == found.owner(create=False) == made
    assert (tmp_path / "state" / "owner").stat().st_mode & 0o777 == 0o600


def test_a_run_is_followed_by_one_process(tmp_path: pathlib.Path) -> None:
    found = home(tmp_path)
    holder = rf"run r-1 is being followed by another command on this controller \(process {os.getpid()}\)\. Leave it"
    with found.lock("r-1") as handle:
        with pytest.raises(RefusedError, match=holder):
            found.lock("r-1", 0.01)
        found.lock("r-2").close()
        assert handle.handle.name.endswith("r-1/lock")
    found.lock("r-1").close()
    assert (found.run_folder("r-1") / "lock").stat().st_mode & 0o777 == 0o600


def test_a_follower_that_was_killed_just_now_is_waited_for(tmp_path: pathlib.Path) -> None:
    found = home(tmp_path)
    handle = found.lock("r-1")
    timer = threading.Timer(0.05, handle.close)
    timer.start()
    found.lock("r-1").close()
    timer.join()


def test_a_record_of_a_newer_version_is_refused(tmp_path: pathlib.Path) -> None:
    value = {"schema": 2, "run_id": "r-1", "job": {"name": "r"}, "state": "running", "submitted_at": "2026-11-20T09:30"}
    (tmp_path / "run.json").write_text(json.dumps(value))
    expected = r"run\.json was written by a newer version of muster\.training \(schema 2, this one reads 1\)\. Upgrade"
    with pytest.raises(RefusedError, match=expected):
        load_record(tmp_path)
    (tmp_path / "run.json").write_text(json.dumps({**value, "schema": 1}))
    assert load_record(tmp_path) is not None


def test_a_run_at_work_that_another_cluster_has_the_record_of_is_refused(tmp_path: pathlib.Path) -> None:
    """It would have two followers; the same name in another cluster after its end is another run."""
    value = {
        "schema": 1,
        "run_id": "r",
        "job": {"name": "x"},
        "state": "running",
        "submitted_at": "2026-01-01T00:00:00Z",
    }
    place = home(tmp_path).run_folder("r")
    place.mkdir(parents=True)
    (place / "run.json").write_text(json.dumps(value))
    require_recorded_here(home(tmp_path), "r")
    with pytest.raises(RefusedError) as caught:
        require_recorded_here(home(tmp_path, "other"), "r")
    assert str(caught.value) == (
        f"run r is at work, and is recorded in cluster lab of {tmp_path}. Name that cluster (-e muster_cluster=lab), or "
        "another run_id"
    )
    require_recorded_here(home(tmp_path, "other"), "another")
    (place / "run.json").write_text(json.dumps({**value, "state": "ended"}))
    require_recorded_here(home(tmp_path, "other"), "r")


def test_no_record_is_none_and_a_damaged_one_is_refused(tmp_path: pathlib.Path) -> None:
    assert read_record(tmp_path) is None
    for text in (b"", b'{"state": "run', b"[1]", b"\xff", b"null"):
        (tmp_path / "run.json").write_bytes(text)
        with pytest.raises(RefusedError, match=r"run\.json is damaged.*\. Move it away or name another run id"):
            read_record(tmp_path)
    (tmp_path / "run.json").unlink()
    (tmp_path / "run.json").mkdir()
    with pytest.raises(RefusedError, match="is damaged"):
        read_record(tmp_path)


@given(
    data=st.binary(max_size=30)
    | st.recursive(st.none() | st.integers(), lambda s: st.lists(s)).map(lambda v: json.dumps(v).encode())
)
def test_any_content_is_a_record_or_refused(data: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.getbasetemp()
    (folder / "run.json").write_bytes(data)
    try:
        assert isinstance(read_record(folder), dict)
    except RefusedError as exc:
        assert "\n" not in str(exc)


def test_an_object_that_is_no_record_is_refused(tmp_path: pathlib.Path) -> None:
    (tmp_path / "run.json").write_text('{"run_id": "r-1"}')
    with pytest.raises(RefusedError):
        read_record(tmp_path)


def test_all_folders_are_private_whatever_the_umask_says(tmp_path: pathlib.Path) -> None:
    before = os.umask(0o022)
    try:
        home(tmp_path / "state").lock("r-1").close()
    finally:
        os.umask(before)
    folders = [path for path in (tmp_path / "state", *(tmp_path / "state").rglob("*")) if path.is_dir()]
    assert {path.stat().st_mode & 0o777 for path in folders} == {0o700}


def test_a_kubeconfig_that_came_by_itself_names_no_cluster() -> None:
    assert names_cluster({"kubeconfig": "/mine"}) and not names_cluster({"kubeconfig": None})
    assert not names_cluster({"kubeconfig": "/state/kubeconfig", OWN_CLUSTER: True}) and not names_cluster({})
