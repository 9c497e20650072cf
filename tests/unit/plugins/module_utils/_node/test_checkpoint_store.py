# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A checkpoint in a bucket: whole or not there, whatever is cut, changed, or damaged."""

from __future__ import annotations

import json
import os
import pathlib
import random
import re
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._node import (
    checkpoint_layouts,
    checkpoint_store,
    checkpoints,
    s3_client,
)
from ansible_collections.muster.training.plugins.module_utils._node.checkpoint_table import Saved
from ansible_collections.muster.training.tests.fakes import object_store
from ansible_collections.muster.training.tests.support.layout_parts import CASES, save_step

SLOT_PARTS = 4


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> t.Iterator[object_store.ObjectStore]:
    monkeypatch.setattr(checkpoint_store, "PART_BYTES", 1000)
    monkeypatch.setattr(s3_client.time, "sleep", lambda _s: None)
    with object_store.running() as found:
        yield found


def slot(server: object_store.ObjectStore) -> dict[str, t.Any]:
    manifest = server.address("s/manifest.json")
    addresses = {"get": manifest, "put": manifest, "delete": manifest}
    return {"manifest": addresses, "parts": [server.address(f"s/part-{number}") for number in range(SLOT_PARTS)]}


def save(folder: pathlib.Path) -> pathlib.Path:
    place = folder / "step-1"
    (place / "sub").mkdir(parents=True)
    for name, size in (("a ü.bin", 2500), ("empty", 0), ("sub/z", 10), ("sub/b", 999)):
        (place / name).write_bytes(random.Random(name).randbytes(size))
    return place


def upload(server: object_store.ObjectStore, path: pathlib.Path) -> dict[str, t.Any]:
    about = {"saved_at": 5, "step": 1, "format": "files"}
    saved = Saved(path.name, 5)
    return checkpoint_store.upload(s3_client.Store(), slot(server), path.parent, saved, about)


def fetch(server: object_store.ObjectStore, folder: pathlib.Path) -> str | None:
    store, addresses = s3_client.Store(), slot(server)
    manifest = checkpoint_store.read_manifest(store, addresses["manifest"]["get"])
    assert manifest is not None
    count = -(-manifest["bytes"] // manifest["part_bytes"])
    return checkpoint_store.download(store, addresses["parts"][:count], manifest, folder)


def content(place: pathlib.Path) -> dict[str, bytes]:
    if place.is_file():
        return {"": place.read_bytes()}
    return {str(path.relative_to(place)): path.read_bytes() for path in place.rglob("*") if path.is_file()}


@pytest.mark.parametrize("single", [False, True])
def test_a_checkpoint_comes_back_as_it_was_saved(
    server: object_store.ObjectStore, tmp_path: pathlib.Path, single: bool
) -> None:
    place = save(tmp_path)
    place = place / "a ü.bin" if single else place
    manifest = upload(server, place)
    assert manifest["bytes"] == (2500 if single else 3509) and manifest["name"] == place.name
    assert fetch(server, tmp_path / "new") is None
    copy = tmp_path / "new" / place.name
    assert content(copy) == content(place) and copy.stat().st_mtime_ns == 5
    assert checkpoint_store.is_whole(copy.parent, manifest) and os.listdir(tmp_path / "new") == [place.name]
    torn = copy if single else copy / "a ü.bin"
    torn.write_bytes(torn.read_bytes()[:-1])
    assert not checkpoint_store.is_whole(copy.parent, manifest)


def test_more_than_fits_into_the_parts_makes_them_larger() -> None:
    mib = 1 << 20
    assert checkpoint_store.part_size(3 * mib, 128) == 64 * mib
    assert checkpoint_store.part_size(128 * 64 * mib + 1, 128) == 64 * mib + 1
    assert checkpoint_store.part_size(0, 128) == 64 * mib


def test_the_manifest_is_deleted_first_and_written_last(
    server: object_store.ObjectStore, tmp_path: pathlib.Path
) -> None:
    upload(server, save(tmp_path))
    wrote = [(method, path.rpartition("/")[2]) for method, path, _range in server.asked]
    parts = [("PUT", f"part-{number}") for number in range(4)]
    assert wrote == [("DELETE", "manifest.json"), *parts, ("PUT", "manifest.json")]


@pytest.mark.parametrize("at", range(6))
def test_an_upload_that_ends_anywhere_leaves_no_manifest(
    server: object_store.ObjectStore, tmp_path: pathlib.Path, at: int
) -> None:
    """A second checkpoint into the same slot fails at each of its requests: the slot holds the first, or none."""
    place = save(tmp_path)
    upload(server, place)
    steps = [("DELETE", "manifest.json"), *(("PUT", f"part-{n}") for n in range(4)), ("PUT", "manifest.json")]
    method, name = steps[at]
    server.faults[method, f"/bucket/s/{name}"] = [403]
    (place / "sub" / "z").write_bytes(b"0123456789")
    with pytest.raises(s3_client.S3Error):
        upload(server, place)
    found = checkpoint_store.read_manifest(s3_client.Store(), server.address("s/manifest.json"))
    assert (found is None) == (at > 0)


def test_a_checkpoint_that_changes_meanwhile_is_not_stored(
    server: object_store.ObjectStore, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = save(tmp_path)
    describe = checkpoint_store.describe_files

    def change(*place_of: t.Any) -> list[t.Mapping[str, t.Any]]:
        listed = describe(*place_of)
        (place / "sub" / "z").unlink()
        return listed

    monkeypatch.setattr(checkpoint_store, "describe_files", change)
    with pytest.raises(checkpoint_store.ChangedError):
        upload(server, place)
    assert "s/manifest.json" not in server.objects


def test_a_link_is_refused_and_named(tmp_path: pathlib.Path) -> None:
    place = save(tmp_path)
    (place / "link").symlink_to("/etc/passwd")
    with pytest.raises(checkpoint_store.ChangedError, match="link is not a file"):
        checkpoint_store.describe_files(place)


@pytest.mark.parametrize("number", range(4))
def test_a_changed_byte_in_any_part_is_found(
    server: object_store.ObjectStore, tmp_path: pathlib.Path, number: int
) -> None:
    upload(server, save(tmp_path))
    damaged = bytearray(server.objects[f"s/part-{number}"])
    damaged[len(damaged) // 2] ^= 1
    server.objects[f"s/part-{number}"] = bytes(damaged)
    assert "is not as it was stored" in str(fetch(server, tmp_path / "new"))
    assert os.listdir(tmp_path / "new") == []


def test_a_part_that_is_too_short_is_found(server: object_store.ObjectStore, tmp_path: pathlib.Path) -> None:
    upload(server, save(tmp_path))
    server.objects["s/part-3"] = server.objects["s/part-3"][:-1]
    assert "is not as it was stored" in str(fetch(server, tmp_path / "new"))


def test_after_a_cut_only_the_rest_is_asked_for(server: object_store.ObjectStore, tmp_path: pathlib.Path) -> None:
    upload(server, save(tmp_path))
    server.faults["GET", "/bucket/s/part-1"] = ["cut"]
    server.asked.clear()
    assert fetch(server, tmp_path / "new") is None
    assert [asked for _m, path, asked in server.asked if path.endswith("part-1")] == ["", "bytes=500-999"]


def test_a_full_disk_is_refused_before_anything_is_fetched(
    server: object_store.ObjectStore, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    upload(server, save(tmp_path))
    monkeypatch.setattr(checkpoint_store.host_blobs, "free_bytes", lambda _path: 1000)
    with pytest.raises(s3_client.S3Error, match="needs 3,509 bytes, and .* has 1,000 free"):
        fetch(server, tmp_path / "new")


@pytest.mark.parametrize(
    "change",
    [
        {"name": "../x"},
        {"name": ".hidden"},
        {"name": "a/../b"},
        {"name": "a/.hidden"},
        {"schema": 2},
        {"bytes": 1},
        {"files": [{"path": "../../etc/x", "size": 3509}]},
        {"files": [{"path": "/etc/x", "size": 3509}]},
        {"files": "x"},
        {"files": None},
        {"part_bytes": 0},
        {"part_bytes": "1"},
        {"saved_at": None},
        {"bytes": 0, "files": [{"path": "a", "size": 5}, {"path": "b", "size": -5}]},
        {"bytes": 0.5, "files": [{"path": "a", "size": 0.5}]},
    ],
)
def test_a_manifest_that_could_write_elsewhere_is_none(
    server: object_store.ObjectStore, tmp_path: pathlib.Path, change: dict[str, t.Any]
) -> None:
    manifest = upload(server, save(tmp_path))
    server.objects["s/manifest.json"] = json.dumps({**manifest, **change}).encode()
    assert checkpoint_store.read_manifest(s3_client.Store(), server.address("s/manifest.json")) is None


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b"\xff"])
def test_a_torn_manifest_is_none(server: object_store.ObjectStore, body: bytes) -> None:
    server.objects["s/manifest.json"] = body
    assert checkpoint_store.read_manifest(s3_client.Store(), server.address("s/manifest.json")) is None


def test_a_tracker_comes_along_and_what_is_below_other_folders_keeps_its_place(
    server: object_store.ObjectStore, tmp_path: pathlib.Path
) -> None:
    deep = tmp_path / "out" / "global_step20" / "mp_rank_00_model_states.pt"
    deep.parent.mkdir(parents=True)
    deep.write_bytes(b"weights")
    (tmp_path / "out" / "latest").write_text("global_step20")
    (tmp_path / "out" / "zero_to_fp32.py").write_text("# tool")
    (saved,) = checkpoint_layouts.find(tmp_path)
    manifest = checkpoint_store.upload(s3_client.Store(), slot(server), tmp_path, saved, {"saved_at": saved.saved_at})
    new = tmp_path / "new"
    assert fetch(server, new) is None and content(new).keys() == {
        "out/global_step20/mp_rank_00_model_states.pt",
        "out/latest",
        "out/zero_to_fp32.py",
    }
    assert checkpoint_layouts.find(new) == [saved] and checkpoint_store.is_whole(new, manifest)
    # A tracker that names another one by now says nothing of what was stored.
    (new / "out" / "latest").write_text("global_step30")
    assert checkpoint_store.is_whole(new, manifest)


def test_what_lies_beside_checkpoints_is_not_one_of_them(tmp_path: pathlib.Path) -> None:
    place = save(tmp_path)
    (tmp_path / "config").write_text("x")
    assert [saved.name for saved in checkpoint_store.list_local(tmp_path, "files", {"step-1"})] == [place.name]
    (place / ".metadata").write_text("x")
    assert [saved.name for saved in checkpoint_store.list_local(tmp_path, "dcp", ())] == [place.name]
    checkpoint_store.set_aside(tmp_path, ["step-1"])
    assert sorted(os.listdir(tmp_path)) == [".step-1.newer", "config"]


@pytest.mark.parametrize("layout", CASES)
def test_each_layout_comes_back_with_all_that_is_its_own(
    server: object_store.ObjectStore, tmp_path: pathlib.Path, layout: str
) -> None:
    case, folder, new = CASES[layout], tmp_path / "c", tmp_path / "new"
    tree = case.alone or case.first
    for step in (10, 20):
        save_step(folder, case, step, tree, tracks=True)
    newest = checkpoints.list_complete(folder, "auto")[0]
    about = {"saved_at": newest.saved_at}
    manifest = checkpoint_store.upload(s3_client.Store(), slot(server), folder, newest, about)
    assert fetch(server, new) is None and checkpoints.list_complete(new, "auto") == [newest]
    own = {case.path(20, name): body for name, body in tree.items()}
    back, beside = content(new), {case.path(20, f"../{name}") for name in case.tracker[:1] if name}
    assert own.items() <= back.items() and set(back) == set(own) | beside
    assert checkpoint_store.is_whole(new, manifest)
    for path, body in own.items():
        (new / path).write_bytes(body[:-1] + b"?")
        assert not checkpoint_store.is_whole(new, manifest), path
        (new / path).write_bytes(body)


@pytest.mark.parametrize("layout", CASES)
def test_of_each_layout_the_one_before_counts_when_the_newest_is_set_aside(tmp_path: pathlib.Path, layout: str) -> None:
    case = CASES[layout]
    for step in (10, 20):
        save_step(tmp_path, case, step, case.alone or case.first, tracks=True)
    checkpoint_store.set_aside(tmp_path, [case.name.format(20)])
    (left,) = checkpoints.list_complete(tmp_path, "auto")
    assert (left.name, left.is_current) == (case.name.format(10), bool(case.tracker[0]))
    assert not [path for path in content(tmp_path) if "20" in path and not re.search(r"(?:^|/)\.", path)]
