# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Code for another container of the pod."""

from __future__ import annotations

import gzip
import io
import json
import pathlib
import tarfile
import typing as t

import pytest

from ansible_collections.muster.training.tests.fakes import object_store
from ansible_collections.muster.training.tests.unit.plugins.module_utils._node.pod_lab import PodLab


@pytest.fixture
def lab(tmp_path: pathlib.Path) -> t.Iterator[PodLab]:
    found = PodLab(tmp_path)
    yield found
    found.close()


def archive(*files: tuple[str, int, bytes], **changes: t.Any) -> bytes:
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w:gz") as tar:
        for name, mode, content in files:
            item = tarfile.TarInfo(name)
            item.size, item.mode = len(content), mode
            for key, value in changes.items():
                setattr(item, key, value)
            tar.addfile(item, io.BytesIO(content))
    return raw.getvalue()


def test_the_code_can_be_placed_without_running_anything(lab: PodLab, tmp_path: pathlib.Path) -> None:
    (tmp_path / "code.tar.gz").write_bytes(archive(("code/a.py", 0o600, b"x = 1\n")))
    spec = lab.spec(0, ["false"], mode="prepare", archive=str(tmp_path / "code.tar.gz"), files={"f": "1"})
    end = lab.run(spec)
    assert (end.code, end.text) == (0, "")
    assert (lab.run_dir(0) / "code" / "a.py").read_text() == "x = 1\n" and (lab.run_dir(0) / "f").exists()


def test_datasets_are_staged_for_the_other_container(lab: PodLab, tmp_path: pathlib.Path) -> None:
    with object_store.running() as server:
        server.objects["a.txt"] = b"aaa"
        rows, urls = [["a.txt", 3, server.etag("a.txt")]], [server.address("a.txt")]
        item = {"name": "text", "dataset": "d1", "ca": None, "objects": rows, "urls": urls}
        (tmp_path / "store").write_bytes(gzip.compress(json.dumps({"datasets": [item]}).encode()))
        spec = lab.spec(0, ["false"], mode="prepare", store=str(tmp_path / "store"))
        end = lab.run(spec)
        assert end.code == 0 and "muster: dataset text: 1 objects" in end.text, end
        assert (lab.run_dir(0) / "data" / "text" / "a.txt").read_bytes() == b"aaa"
        item["urls"], item["dataset"] = [server.address("gone")], "d2"
        (tmp_path / "store").write_bytes(gzip.compress(json.dumps({"datasets": [item]}).encode()))
        end = lab.run(spec)
        assert end.code != 0 and "dataset text: object a.txt: " in end.text, end
