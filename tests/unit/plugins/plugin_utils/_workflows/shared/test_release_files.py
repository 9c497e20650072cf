# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files of a release on their way to a machine: from a folder with a request, from a URL by the machine itself."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import pathlib
import random
import tracemalloc
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import RefusedError
from ansible_collections.muster.training.plugins.module_utils._node import placed_files
from ansible_collections.muster.training.plugins.plugin_utils._hosts import agent_package
from ansible_collections.muster.training.plugins.plugin_utils._hosts.downloads import Download
from ansible_collections.muster.training.plugins.plugin_utils._hosts.node_client import NodeClient
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared import release_files
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared.digest_lock import DigestLock
from ansible_collections.muster.training.tests.support.carried import as_stream

TOOL = Download("tool", "1.0", "amd64", "tool.tgz", "https://releases.example.com/tool.tgz", "")


BEGIN = {"paths": ["/usr/bin/tool"]}


class Machine:
    """A machine that keeps what it is sent."""

    def __init__(self, root: pathlib.Path, downloaded: bytes = b"") -> None:
        self.root, self.downloaded = root, downloaded
        self.steps: list[str] = []
        self.begun: list[bool] = []

    def call(self, op: str, **values: t.Any) -> dict[str, t.Any]:
        assert op == "mesh"
        self.steps.append(values["step"])
        self.begun.append(values.get("begin") == BEGIN)
        if values["step"] == "discard":
            return placed_files.discard({**values, "root": str(self.root)})
        downloads = {item["path"]: self.downloaded for item in values.pop("fetches", [])}
        found = placed_files.bring(placed_files.Recorder("record.json", (), str(self.root)), as_stream(values))
        return {
            "digests": {path: hashlib.sha256(data).hexdigest() for path, data in downloads.items()} | found["digests"]
        }

    def read(self, path: str) -> bytes:
        return placed_files.part_of(path, str(self.root)).read_bytes()


def find(
    folder: pathlib.Path, lock: DigestLock, path: str, download: Download = TOOL, source: str | None = None
) -> t.Any:
    given = str(folder) if source is None else source
    return release_files.find_file(download, path, 0o755, given, folder, lock, check=False)


def test_all_files_of_the_controller_go_with_one_request(tmp_path: pathlib.Path) -> None:
    other = dataclasses.replace(TOOL, name="other", file="other.tar")
    (tmp_path / "tool.tgz").write_bytes(b"0123456789")
    (tmp_path / "other.tar").write_bytes(b"x" * 3_000_000)
    lock, machine = DigestLock(tmp_path / "lock.json"), Machine(tmp_path / "machine")
    items = [find(tmp_path, lock, "/usr/bin/tool"), find(tmp_path, lock, "/opt/other.tar", other)]
    sent = release_files.send_files(t.cast(t.Any, machine), "mesh", lock, items, BEGIN)
    digest = hashlib.sha256(b"0123456789").hexdigest()
    assert sent[0] == {"path": "/usr/bin/tool", "mode": 0o755, "sha256": digest} and len(sent) == 2
    assert machine.read("/usr/bin/tool") == b"0123456789" and machine.read("/opt/other.tar") == b"x" * 3_000_000
    assert lock.find_digest(TOOL) == digest
    assert machine.steps == ["bring"] and machine.begun == [True]
    assert release_files.send_files(t.cast(t.Any, machine), "mesh", lock, [], BEGIN) == [] and len(machine.steps) == 1


def test_what_is_more_than_a_request_takes_goes_with_the_next(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(release_files, "REQUEST_BYTES", 80_000)
    monkeypatch.setattr(release_files, "_CHUNK", 10_000)
    contents = {"/opt/a": random.Random(0).randbytes(190_000), "/opt/b": b"", "/opt/c": random.Random(1).randbytes(100)}
    for path, data in contents.items():
        (tmp_path / path.rpartition("/")[2]).write_bytes(data)
    machine = Machine(tmp_path / "machine")
    origins = [(path, tmp_path / path.rpartition("/")[2]) for path in contents]
    assert release_files.push_files(t.cast(t.Any, machine), "mesh", origins, begin=BEGIN) == {}
    assert {path: machine.read(path) for path in contents} == contents
    assert machine.begun == [True, False, False]


def test_a_request_is_held_once(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two requests of a file that cannot be packed; what a connection takes is one buffer."""
    room = 12 << 20
    monkeypatch.setattr(release_files, "REQUEST_BYTES", room)
    place = tmp_path / "image"
    place.write_bytes(random.Random(0).randbytes(room + (4 << 20)))
    sizes = []

    def shell(_command: str, data: bytes) -> tuple[int, str, str]:
        sizes.append(len(data))
        return 0, agent_package.MARK + json.dumps({"digests": {}}), ""

    remote = NodeClient("n", shell, program=f"/x/agent/{agent_package.agent_version()}")
    tracemalloc.start()
    release_files.push_files(remote, "k3s", [("/x", place)])
    _now, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert [round(size / (1 << 20)) for size in sizes] in ([12, 4], [13, 3])
    # A buffer that grows has an eighth more than it needs; beside it are a file's piece and its packed form.
    assert most < 1.25 * sizes[0] + (4 << 20)


def test_a_check_holds_no_digest(tmp_path: pathlib.Path) -> None:
    (tmp_path / "tool.tgz").write_bytes(b"x")
    lock = DigestLock(tmp_path / "lock.json")
    release_files.find_file(TOOL, "/x", 0o755, str(tmp_path), tmp_path, lock, check=True)
    assert not (tmp_path / "lock.json").exists()


def test_a_download_of_another_digest_is_discarded(tmp_path: pathlib.Path) -> None:
    lock, machine = DigestLock(tmp_path / "lock.json"), Machine(tmp_path / "machine", b"first")
    found = find(tmp_path, lock, "/x", source="")
    assert found.origin == TOOL.url and found.sha256 == ""
    sent = release_files.send_files(t.cast(t.Any, machine), "mesh", lock, [found], BEGIN)
    assert sent == [{"path": "/x", "mode": 0o755, "sha256": hashlib.sha256(b"first").hexdigest()}]
    machine.downloaded = b"another"
    with pytest.raises(RefusedError, match="has the SHA-256"):
        release_files.send_files(t.cast(t.Any, machine), "mesh", lock, [found], BEGIN)
    assert machine.steps == ["bring", "bring", "discard"] and machine.begun == [True, True, False]
