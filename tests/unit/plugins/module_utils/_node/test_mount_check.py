# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a node sees of a mount; whole checks with real mounts are in the tests of ``filesystem_check.py``."""

from __future__ import annotations

import pathlib
import time
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._node import mount_check, mount_marker

TABLE = """22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 22 0:50 / /mnt/data rw,noatime shared:9 - nfs4 10.0.0.5:/data rw,hard
31 22 0:51 / /mnt/with\\040blank rw - fuse.juicefs JuiceFS:my\\040vol rw
32 22 8:1 /srv/x /mnt/data/own rw - ext4 /dev/sda1 rw
33 30 0:52 / /mnt/data rw - lustre 10.0.0.1@tcp:/fs rw
"""


@pytest.mark.parametrize(
    ("path", "kind", "source", "device"),
    [
        ("/mnt/data", "lustre", "10.0.0.1@tcp:/fs", "0:52"),
        ("/mnt/data/team/x", "lustre", "10.0.0.1@tcp:/fs", "0:52"),
        ("/mnt/data/own", "ext4", "/dev/sda1", "8:1"),
        ("/mnt/database", "ext4", "/dev/sda1", "8:1"),
        ("/mnt/with blank/x", "fuse.juicefs", "JuiceFS:my vol", "0:51"),
        ("/", "ext4", "/dev/sda1", "8:1"),
    ],
)
def test_the_mount_that_a_path_is_on(path: str, kind: str, source: str, device: str) -> None:
    found = mount_check.read_mount(path, TABLE)
    assert (found["type"], found["source"], found["device"]) == (kind, source, device)


def test_a_password_in_the_name_of_a_mount_is_not_reported(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mount = {"type": "davfs", "source": "https://me:pw-canary@nas/x", "device": "0:9", "point": "/"}
    monkeypatch.setattr(mount_check, "read_mount", lambda _path, _table: mount)
    assert mount_check._describe(str(tmp_path))["source"] == "https://nas/x"


def test_one_node_alone_uses_a_folder_and_leaves_the_marker(tmp_path: pathlib.Path) -> None:
    probe = {"token": "t", "node": "a", "writer": "a", "wait_s": 0}
    request: dict[str, t.Any] = {"path": str(tmp_path), "types": [], "any_disk": True, "probe": probe}
    found = mount_check.check(request)
    assert not found.get("failed") and found["made"] and found["wrote"] and found["locks"] == "own"
    assert [item.name for item in tmp_path.iterdir()] == [mount_marker.FILE]
    again = mount_check.check(request)
    assert again["marker"] == found["marker"] and not again.get("made")


def test_two_nodes_see_each_other_and_their_locks(tmp_path: pathlib.Path) -> None:
    def request(node: str, writer: str) -> dict[str, t.Any]:
        probe = {"token": "t", "node": node, "writer": writer, "wait_s": 20}
        return {"path": str(tmp_path), "any_disk": True, "probe": probe}

    until = time.monotonic() + 60
    children = [mount_check.start(request(*pair)) for pair in (("a", "b"), ("b", "a"))]
    answers = [child.answer(until) for child in children]
    assert [item["locks"] for item in answers] == ["shared", "shared"] and not any(x.get("unread") for x in answers)
    assert [item.name for item in tmp_path.iterdir()] == [mount_marker.FILE]


def test_what_a_check_left_is_deleted_and_only_a_marker_of_its_own(tmp_path: pathlib.Path) -> None:
    left = tmp_path / mount_check.FOLDER / "t" / "file-x"
    left.parent.mkdir(parents=True)
    left.touch()
    (tmp_path / mount_marker.FILE).write_text("mine\n")
    about = {"path": str(tmp_path), "token": "t", "limit_s": 30}
    assert mount_check.clean_up({**about, "marker": "other"}) == {"ok": True}
    assert [item.name for item in tmp_path.iterdir()] == [mount_marker.FILE]
    mount_check.clean_up({**about, "marker": "mine"})
    assert list(tmp_path.iterdir()) == []
