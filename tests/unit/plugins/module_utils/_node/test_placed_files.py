# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files of a program below a folder: a record before anything, digests, members of archives, removal of folders."""

from __future__ import annotations

import hashlib
import io
import pathlib
import resource
import tarfile
import tracemalloc
import zlib

import pytest

from ansible_collections.muster.training.plugins.module_utils._node import placed_files
from ansible_collections.muster.training.tests.support.carried import carry, pack, pieces

PROGRAM = "/usr/local/bin/tool"


def bring(root: pathlib.Path, path: str, data: bytes) -> str:
    found = placed_files.bring(placed_files.Recorder("record.json", (), str(root)), carry(path, data))
    assert found == {"digests": {}}
    return hashlib.sha256(data).hexdigest()


def archive(**members: bytes) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as target:
        for name, data in members.items():
            item = tarfile.TarInfo(f"tool_1.0_amd64/{name}")
            item.size = len(data)
            target.addfile(item, io.BytesIO(data))
    return packed.getvalue()


@pytest.fixture
def recorder(tmp_path: pathlib.Path) -> placed_files.Recorder:
    return placed_files.Recorder("var/lib/muster/tool.json", ("var/lib/tool", "etc/tool"), str(tmp_path))


def test_the_record_is_there_before_the_files(recorder: placed_files.Recorder, tmp_path: pathlib.Path) -> None:
    (tmp_path / "etc/tool").mkdir(parents=True)
    recorder.begin([PROGRAM], {"unit": "tool.service"})
    record = recorder.read()
    assert record is not None
    assert (record["files"], record["before"], record["unit"]) == ({PROGRAM: None}, ["etc/tool"], "tool.service")
    assert str(tmp_path / "usr/local/bin") in record["folders"] and not (tmp_path / "usr").exists()


def test_members_of_an_archive_are_placed_and_it_goes(recorder: placed_files.Recorder, tmp_path: pathlib.Path) -> None:
    sha256 = bring(tmp_path, "/var/lib/muster/tool.tgz", archive(tool=b"one", toold=b"two"))
    items = [
        {"path": f"/usr/local/bin/{name}", "mode": 0o755, "sha256": sha256, "archive": "/var/lib/muster/tool.tgz"}
        | {"member": name}
        for name in ("tool", "toold")
    ]
    assert recorder.apply(items, [], {}) == {"placed": ["/usr/local/bin/tool", "/usr/local/bin/toold"]}
    assert (tmp_path / "usr/local/bin/toold").read_bytes() == b"two"
    assert [item.name for item in (tmp_path / "var/lib/muster").iterdir()] == ["tool.json"]
    assert recorder.digest_of(PROGRAM) == {"sha256": hashlib.sha256(b"one").hexdigest(), "mode": 0o755}


def test_all_files_of_a_request_come_one_after_the_other(
    recorder: placed_files.Recorder, tmp_path: pathlib.Path
) -> None:
    contents = {"/opt/a": b"one" * 9999, "/opt/b": b"", "/opt/c": b"three"}
    body = b"".join(pack(path, data) for path, data in contents.items()) + b"\n"
    placed_files.bring(recorder, {"body": io.BytesIO(body), "begin": {"paths": list(contents)}})
    found = {path: placed_files.part_of(path, recorder.root).read_bytes() for path in contents}
    assert found == contents and (recorder.read() or {})["files"] == dict.fromkeys(contents)
    with pytest.raises(OSError, match="what follows the request was cut off"):
        placed_files.bring(recorder, {"body": io.BytesIO(body[:-1])})
    # The mark of the last piece's end, and that piece.
    for cut in (3, 4):
        with pytest.raises(OSError, match=r"\.c\.part cannot be stored: "):
            placed_files.bring(recorder, {"body": io.BytesIO(body[:-cut])})
        assert not placed_files.part_of("/opt/c", recorder.root).exists()


def test_a_few_bytes_that_stand_for_many_are_unpacked_piece_by_piece(tmp_path: pathlib.Path) -> None:
    packer = zlib.compressobj(1)
    packed = b"".join(packer.compress(bytes(1 << 20)) for _number in range(64)) + packer.flush()
    tracemalloc.start()
    placed_files.store_part(tmp_path / "part", 0, io.BytesIO(pieces(packed)))
    _now, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (tmp_path / "part").stat().st_size == 64 << 20 and most < 8 << 20


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"no part at all",
        pieces(b"no part at all"),
        pieces(zlib.compress(b"x" * 99)[:-2]),
        pieces(zlib.compress(b"x" * 99))[:-9],
        b"-5\n",
        b"99999999\nx",
    ],
)
def test_what_is_no_whole_part_is_refused_and_not_kept(body: bytes, tmp_path: pathlib.Path) -> None:
    with pytest.raises(OSError, match="part cannot be stored: "):
        placed_files.store_part(tmp_path / "part", 0, io.BytesIO(body))
    assert not list(tmp_path.iterdir())


def test_a_full_disk_is_not_kept_full(tmp_path: pathlib.Path) -> None:
    packed = zlib.compress(bytes(1 << 20))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, before[1]))
    try:
        with pytest.raises(OSError, match="part cannot be stored: File too large"):
            placed_files.store_part(tmp_path / "part", 0, io.BytesIO(pieces(packed)))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not list(tmp_path.iterdir())


def test_an_archive_of_another_digest_or_without_the_member_places_nothing(
    recorder: placed_files.Recorder, tmp_path: pathlib.Path
) -> None:
    item = {"path": PROGRAM, "mode": 0o755, "archive": "/var/lib/muster/tool.tgz", "member": "tool"}
    bring(tmp_path, "/var/lib/muster/tool.tgz", archive(tool=b"one"))
    assert "has the SHA-256" in recorder.apply([{**item, "sha256": "0" * 64}], [], {})["problem"]
    sha256 = bring(tmp_path, "/var/lib/muster/tool.tgz", archive(other=b"one"))
    with pytest.raises(OSError, match=r"^tool\.tgz has no file tool$"):
        recorder.apply([{**item, "sha256": sha256}], [], {})
    assert not (tmp_path / PROGRAM.lstrip("/")).exists()


def test_obsolete_files_and_folders_that_were_made_go(recorder: placed_files.Recorder, tmp_path: pathlib.Path) -> None:
    (tmp_path / "etc").mkdir()
    wanted = [{"path": f"/etc/tool/{name}", "mode": 0o600, "text": name} for name in ("a", "b")]
    recorder.apply(wanted, [], {})
    recorder.apply([], ["/etc/tool/a"], {})
    record = recorder.read()
    assert record is not None and list(record["files"]) == ["/etc/tool/b"]
    (tmp_path / "etc/tool/b").unlink()
    placed_files.remove_empty(record["folders"])
    assert not (tmp_path / "etc/tool").exists() and (tmp_path / "etc").exists()


def test_an_archive_of_a_run_that_was_killed_goes_with_the_next_one(
    recorder: placed_files.Recorder, tmp_path: pathlib.Path
) -> None:
    """Also where the next one wants what is placed already, or removes the program."""
    place = "/opt/tool/download"
    paths = [PROGRAM, place]
    sha256 = bring(tmp_path, place, archive(tool=b"one"))
    recorder.begin(paths, {})
    item = {"path": PROGRAM, "mode": 0o755, "sha256": sha256, "archive": place, "member": "tool"}
    recorder.apply([item], [], {})
    assert list((recorder.read() or {})["files"]) == [PROGRAM], "an archive is no file of the program"
    recorder.begin(paths, {})
    bring(tmp_path, place, archive(tool=b"two"))
    assert placed_files.part_of(place, recorder.root).exists()
    # Killed here: the record has what the next run does not want, which is obsolete.
    recorder.apply([], sorted(set((recorder.read() or {})["files"]) - {PROGRAM}), {})
    assert not placed_files.part_of(place, recorder.root).exists()
    assert (tmp_path / "usr/local/bin/tool").read_bytes() == b"one"
    assert list((recorder.read() or {})["files"]) == [PROGRAM]
