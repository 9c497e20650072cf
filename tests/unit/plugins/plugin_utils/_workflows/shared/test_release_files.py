# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files of a release on their way to a machine: from a folder in pieces, from a URL by the machine itself."""

from __future__ import annotations

import base64
import hashlib
import pathlib
import typing as t
import zlib

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import RefusedError
from ansible_collections.muster.training.plugins.plugin_utils._hosts.downloads import Download
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared import release_files
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared.digest_lock import DigestLock

TOOL = Download("tool", "1.0", "amd64", "tool.tgz", "https://releases.example.com/tool.tgz", "")


BEGIN = {"paths": ["/usr/bin/tool"]}


class Machine:
    """A machine that keeps what it is sent."""

    def __init__(self, downloaded: bytes = b"") -> None:
        self.downloaded, self.data = downloaded, b""
        self.steps: list[str] = []
        self.begun: list[bool] = []

    def call(self, op: str, **values: t.Any) -> dict[str, t.Any]:
        assert op == "mesh"
        self.steps.append(values["step"])
        self.begun.append(values.get("begin") == BEGIN)
        if values["step"] == "piece":
            self.data = self.data[: values["offset"]] + zlib.decompress(base64.b64decode(values["data"]))
            return {"size": len(self.data)}
        return {"sha256": hashlib.sha256(self.downloaded).hexdigest()}


def test_a_file_of_the_controller_is_sent_in_pieces(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(release_files, "PIECE_BYTES", 4)
    (tmp_path / "tool.tgz").write_bytes(b"0123456789")
    lock, machine = DigestLock(tmp_path / "lock.json"), Machine()
    found = release_files.find_file(TOOL, "/usr/bin/tool", 0o755, str(tmp_path), tmp_path, lock, check=False)
    sent = release_files.send_file(t.cast(t.Any, machine), "mesh", lock, found, BEGIN)
    digest = hashlib.sha256(b"0123456789").hexdigest()
    assert sent == {"path": "/usr/bin/tool", "mode": 0o755, "sha256": digest} and machine.data == b"0123456789"
    assert lock.find_digest(TOOL) == digest
    assert machine.begun == [True, False, False]


def test_a_check_holds_no_digest(tmp_path: pathlib.Path) -> None:
    (tmp_path / "tool.tgz").write_bytes(b"x")
    lock = DigestLock(tmp_path / "lock.json")
    release_files.find_file(TOOL, "/x", 0o755, str(tmp_path), tmp_path, lock, check=True)
    assert not (tmp_path / "lock.json").exists()


def test_a_download_of_another_digest_is_discarded(tmp_path: pathlib.Path) -> None:
    lock, machine = DigestLock(tmp_path / "lock.json"), Machine(b"first")
    found = release_files.find_file(TOOL, "/x", 0o755, "", tmp_path, lock, check=False)
    assert found.origin == TOOL.url and found.sha256 == ""
    release_files.send_file(t.cast(t.Any, machine), "mesh", lock, found, BEGIN)
    machine.downloaded = b"another"
    with pytest.raises(RefusedError, match="has the SHA-256"):
        release_files.send_file(t.cast(t.Any, machine), "mesh", lock, found, BEGIN)
    assert machine.steps == ["fetch", "fetch", "discard"] and machine.begun == [True, True, False]
