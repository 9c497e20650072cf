# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is copied between nodes that share no folder: what one alone saved, whole, and never a program's own parts."""

from __future__ import annotations

import json
import os
import pathlib
import struct
import typing as t
import zipfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.module_utils._node import checkpoint_copies as copies
from ansible_collections.muster.training.tests.support.layout_parts import CASES, save_step

Files = dict[str, list[int]]


def entry(name: str, at: int, *, size: int = 100, whole: bool = True, own: bool = True, **files: int) -> copies.Entry:
    """Return a file, or with ``files`` (path: time) a folder; ``own`` says whether the node wrote it."""
    listed: Files = {path.replace("__", "."): [size, when] for path, when in files.items()} or {"": [size, at]}
    return copies.Entry(name, at, whole, listed, list(listed) if own else [])


def folder(name: str, at: int, *paths: str, own: t.Sequence[str] | None = None, whole: bool = True) -> copies.Entry:
    listed: Files = {path: [100, at] for path in paths}
    return copies.Entry(name, at, whole, listed, list(paths if own is None else own))


def planned(**nodes: list[copies.Entry]) -> dict[str, list[str]]:
    plan = copies.plan_copies(nodes)
    return {node: [copy.entry.name for copy in found] for node, found in plan.copies.items()}


TRAINER = ("model.safetensors", "optimizer.pt", "trainer_state.json", "rng_state_0.pth")


@pytest.mark.parametrize(
    ("a", "b", "copied"),
    [
        ([entry("ckpt_1.pt", 1), entry("ckpt_2.pt", 2)], [], ["ckpt_2.pt"]),
        ([entry("ckpt_2.pt", 2)], [entry("ckpt_1.pt", 1, own=False)], ["ckpt_2.pt"]),
        ([entry("ckpt.pt", 2)], [entry("ckpt.pt", 1, own=False)], ["ckpt.pt"]),
        ([entry("ckpt_2.pt", 2)], [entry("ckpt_2.pt", 2, own=False)], []),
        # Beside the checkpoint: what names it, and settings that each rank writes.
        ([entry("ckpt_2.pt", 2), entry("latest", 3, size=9)], [], ["ckpt_2.pt", "latest"]),
        ([entry("ckpt_2.pt", 2), entry("args.json", 1, size=9)], [entry("args.json", 1, size=8)], ["ckpt_2.pt"]),
        ([entry("ckpt_2.pt", 2), entry("train.log", 3, size=900)], [entry("train.log", 3)], ["ckpt_2.pt"]),
        ([folder("checkpoint-5", 5, *TRAINER)], [folder("checkpoint-5", 5, "rng_state_1.pth")], ["checkpoint-5"]),
        ([folder("iter_5", 5, "mp_rank_00/model.pt")], [], ["iter_5"]),
        ([folder("5", 5, "default/ocdbt.process_0/d/a", "default/array_metadatas/process_0")], [], ["5"]),
        # Half-saved: the one before is brought, or nothing.
        ([entry("c_1.pt", 1), entry("c_2.pt", 2, whole=False)], [], ["c_1.pt"]),
        ([entry("c_2.pt", 2, whole=False)], [], []),
        # A part per node: by who wrote, at any step, and by name.
        ([entry("c_2.pt", 2)], [entry("c_2.pt", 2)], []),
        ([entry("c_2.pt", 2)], [entry("c_1.pt", 1)], []),
        ([entry("c_2.pt", 2)], [entry("c_2.pt.tmp", 2, whole=False)], []),
        ([entry("c_rank0_2.pt", 2)], [entry("c_rank1_2.pt", 2)], []),
        ([entry("c_rank0_2.pt", 2)], [], []),
        ([folder("step_5", 5, ".metadata", "__0_0.distcp")], [folder("step_5", 5, "__1_0.distcp", whole=False)], []),
        ([folder("global_step5", 5, "zero_pp_rank_0_optim.pt"), entry("latest", 6, size=9)], [], []),
    ],
)
def test_what_one_node_alone_saved_is_copied(a: list[copies.Entry], b: list[copies.Entry], copied: list[str]) -> None:
    found = planned(a=a, b=b)
    assert sorted(found.pop("b", [])) == copied
    assert found == {}, "what a node wrote itself stays as it is"


def test_settings_with_one_content_do_not_make_a_program_of_parts() -> None:
    same = [copies.Entry("args.json", 1, True, {"": [900, 1]}, [""], "digest") for _ in range(2)]
    assert planned(a=[entry("ckpt_2.pt", 2), same[0]], b=[same[1]]) == {"b": ["ckpt_2.pt"]}


def test_a_node_that_lost_its_disk_gets_the_copy_of_another() -> None:
    copy = entry("ckpt_2.pt", 2, own=False)
    assert planned(a=[], b=[copy], c=[copy]) == {"a": ["ckpt_2.pt"]}
    assert copies.plan_copies({"a": [], "b": [copy], "c": [copy]}).copies["a"][0].sources in (("b", "c"), ("c", "b"))


def test_a_file_that_its_program_was_killed_over_is_replaced_by_the_copy_of_another_node() -> None:
    torn, copy = entry("ckpt.pt", 3, whole=False), entry("ckpt.pt", 2, own=False)
    assert planned(a=[torn], b=[copy]) == {"a": ["ckpt.pt"]}
    assert planned(a=[torn], b=[entry("ckpt.pt", 2, own=False, whole=False)]) == {}, "what is torn, too, is of no use"
    assert planned(a=[torn], b=[entry("ckpt.pt", 2)]) == {}, "each node writes its own"


def test_only_missing_files_are_copied_and_former_copies_go() -> None:
    mine = copies.Entry("checkpoint-5", 5, True, {"rng_state_1.pth": [9, 5], "model.safetensors": [100, 5]},
                        ["rng_state_1.pth"])  # fmt: skip
    plan = copies.plan_copies({"a": [folder("checkpoint-5", 5, *TRAINER)], "b": [mine, folder("checkpoint-4", 4, "m",
                              own=())]})  # fmt: skip
    (copy,) = plan.copies["b"]
    assert sorted(copy.missing) == sorted(set(TRAINER) - {"model.safetensors"})
    assert plan.stale == {"b": ["checkpoint-4"]} and not plan.in_parts


NAMES = st.sampled_from(["c_1.pt", "c_2.pt", "latest", "c_rank0.pt", "log.jsonl", "x.tmp"])
ENTRIES = st.builds(
    lambda name, at, size, whole, own: entry(name, at, size=size, whole=whole, own=own),
    NAMES, st.integers(0, 3), st.integers(0, 200), st.booleans(), st.booleans(),
)  # fmt: skip
FOLDERS = st.lists(ENTRIES, max_size=4, unique_by=lambda item: item.name)


@given(st.dictionaries(st.sampled_from("abc"), FOLDERS, min_size=1))
def test_any_plan_copies_whole_ones_and_ends(nodes: dict[str, list[copies.Entry]]) -> None:
    """Nothing whole of a node's own is replaced or removed, and after the copies nothing is left to do."""
    plan = copies.plan_copies(nodes)
    for node, found in plan.copies.items():
        own = {item.name for item in nodes[node] if item.own and item.whole}
        for copy in found:
            assert copy.entry.whole and copy.sources and node not in copy.sources and copy.entry.name not in own
            kept = [item for item in nodes[node] if item.name != copy.entry.name]
            nodes = {**nodes, node: [*kept, copy.entry._replace(own=[])]}
    for node, names in plan.stale.items():
        assert not [item for item in nodes[node] if item.name in names and item.own]
        nodes = {**nodes, node: [item for item in nodes[node] if item.name not in names]}
    assert copies.plan_copies(nodes)._replace(in_parts=plan.in_parts) == copies.CopyPlan(plan.in_parts, {}, {})


def write(place: pathlib.Path, data: bytes) -> pathlib.Path:
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(data)
    return place


def archive(place: pathlib.Path) -> bytes:
    """Write a file as torch.save does, and return its content."""
    with zipfile.ZipFile(place, "w") as handle:
        handle.writestr("archive/data.pkl", b"x" * 200_000)
    return place.read_bytes()


def tensors(size: int) -> bytes:
    head = json.dumps({"w": {"dtype": "F32", "shape": [size // 4], "data_offsets": [0, size]}}).encode()
    return struct.pack("<Q", len(head)) + head + bytes(size)


def test_what_lacks_its_end_is_not_whole(tmp_path: pathlib.Path) -> None:
    data = archive(tmp_path / "whole.pt")
    write(tmp_path / "torn.pt", data[: len(data) // 2])
    write(tmp_path / "whole.safetensors", tensors(4000))
    write(tmp_path / "torn.safetensors", tensors(4000)[:-1])
    write(tmp_path / "whole.json", b'{"step": 1}')
    write(tmp_path / "torn.json", b'{"step": ')
    write(tmp_path / "torn-empty", b"")
    write(tmp_path / "torn-written.tmp", b"x")
    write(tmp_path / "torn_tmp/state", b"x")
    write(tmp_path / "whole-dcp/.metadata", b"x")
    write(tmp_path / "whole-dcp/__0_0.distcp", b"x")
    write(tmp_path / "torn-dcp/__0_0.distcp", b"x")
    write(tmp_path / "torn-trainer/optimizer.pt", b"x")
    write(tmp_path / "torn-inside/a.safetensors", tensors(4000)[:-1])
    write(tmp_path / "whole-text", b"20")
    os.symlink("whole.pt", tmp_path / "link.pt")
    found = {item.name: item.whole for item in copies.list_entries(tmp_path, "files")}
    assert found == {name: name.startswith("whole") for name in found} and len(found) == 14, found
    dcp = {item.name for item in copies.list_entries(tmp_path, "dcp") if item.whole}
    assert dcp == {"whole-dcp"}


def test_a_copy_that_its_program_wrote_again_is_its_own(tmp_path: pathlib.Path) -> None:
    place = write(tmp_path / "ckpt.pt", b"twenty")
    at = place.stat().st_mtime_ns
    ledger = {"ckpt.pt": {"whole": True, "files": {"": [6, 77, at]}}}
    write(tmp_path / copies.LEDGER, json.dumps(ledger).encode())
    (copied,) = copies.list_entries(tmp_path, "files")
    assert (copied.own, copied.saved_at, copied.files) == ([], 77, {"": [6, 77]})
    os.utime(place, ns=(at + 1, at + 1))
    (written,) = copies.list_entries(tmp_path, "files")
    assert written.own == [""] and written.saved_at == at + 1


def test_a_folder_that_is_not_there_has_none(tmp_path: pathlib.Path) -> None:
    assert copies.list_entries(tmp_path / "none", "files") == []
    write(tmp_path / copies.LEDGER, b"[")
    assert copies.read_ledger(tmp_path) == {}


def test_of_files_beside_each_other_the_newest_whole_ones_are_copied_together(tmp_path: pathlib.Path) -> None:
    """The node was killed while the index of step 20 was written: its parts are of no use without it."""
    case, folder = CASES["tensorflow"], tmp_path / "a"
    for step in (10, 20):
        save_step(folder, case, step, case.first, tracks=step == 10)
    (folder / "ckpt-20.index").write_bytes(b"cut")
    entries = {"a": copies.list_entries(folder, "auto"), "b": []}
    copied = [copy.entry.name for copy in copies.plan_copies(entries).copies["b"]]
    assert sorted(copied) == ["checkpoint", "ckpt-10.data-00000-of-00001", "ckpt-10.index"]
    assert copied.index("ckpt-10.data-00000-of-00001") < copied.index("ckpt-10.index"), "what makes it one comes last"
