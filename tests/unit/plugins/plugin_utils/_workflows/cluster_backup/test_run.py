# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An archive of a machine becomes a backup, and comes back to a machine; shells of this one stand for it."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import pathlib
import subprocess
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError, MusterError, NodeError
from ansible_collections.muster.training.plugins.plugin_utils._hosts.node_client import NodeClient
from ansible_collections.muster.training.plugins.plugin_utils._workflows.cluster_backup import run, sealed

CA = b"the authority"
MACHINE = {
    "authority": hashlib.sha256(CA).hexdigest(),
    "datastore": "sqlite",
    "current": "v1.34.10+k3s1",
    "active": True,
    "data_bytes": 1000,
    "free_bytes": 9 << 30,
}
Dict = dict[str, t.Any]


def shell(command: str, data: bytes) -> tuple[int, str, str]:
    done = subprocess.run(["sh", "-c", command], input=data, capture_output=True, check=False)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


REMOTE = NodeClient("s1", shell)


@pytest.fixture
def options(tmp_path: pathlib.Path) -> Dict:
    home = tmp_path / "state" / "lab"
    home.mkdir(parents=True)
    cluster = {"server": "https://s1:6443", "certificate-authority-data": base64.b64encode(CA).decode()}
    (home / "kubeconfig").write_text(json.dumps({"clusters": [{"cluster": cluster}]}))
    archive = tmp_path / "archive with space"
    archive.write_bytes(os.urandom(sealed.PIECE_BYTES + 5))
    given = {"machine": MACHINE, "archive": str(archive), "keep": 2, "backup": "newest", "store": None, "key": None}
    asked = {"key_file": None, "version": "v1.34.10+k3s1", "overwrite": False, "again": False, "servers": 1}
    return {**given, **asked, "purpose": "restore", "cluster": "lab", "state_home": {"path": str(tmp_path / "state")}}


def test_it_is_kept_sealed_and_comes_back_as_it_was(options: Dict, tmp_path: pathlib.Path) -> None:
    kept = run.keep(options, REMOTE)
    assert kept["removed"] == [] and kept["backup"]["plain_bytes"] == sealed.PIECE_BYTES + 5
    folder = tmp_path / "state" / "lab" / "backups" / kept["backup"]["id"]
    assert kept["places"] == [str(folder)] and (tmp_path / "state/lab/backup.key").stat().st_mode & 0o777 == 0o600
    assert not {"salt", "key_check", "seal"} & set(kept["backup"])
    found = run.examine({**options, "machine": {"free_bytes": 9 << 30}}, "new")
    assert found["restore"] is True and found["backup"] == kept["backup"] and found["changed"] is False
    target = tmp_path / "there"
    assert run.place({**options, "archive": str(target)}, REMOTE)["backup"] == kept["backup"]
    assert target.read_bytes() == pathlib.Path(options["archive"]).read_bytes()
    assert target.stat().st_mode & 0o777 == 0o600


def test_more_than_are_kept_go_when_the_new_one_is_whole(options: Dict) -> None:
    first = run.keep({**options, "keep": 1}, REMOTE)["backup"]["id"]
    pathlib.Path(options["archive"]).rename(options["archive"] + "2")
    with pytest.raises(NodeError, match="did not arrive|cannot be read"):
        run.keep({**options, "keep": 1}, REMOTE)
    assert [item["id"] for item in run.examine({**options, "purpose": "backup"}, "s1")["backups"]] == [first]
    pathlib.Path(options["archive"] + "2").rename(options["archive"])
    run.keep({**options, "keep": 9}, REMOTE)
    third = run.keep({**options, "keep": 1}, REMOTE)
    assert first in third["removed"] and len(third["removed"]) == 2


def test_one_that_changes_while_it_is_read_is_no_backup(options: Dict) -> None:
    def changing(command: str, data: bytes) -> tuple[int, str, str]:
        answer = shell(command, data)
        with open(options["archive"], "ab") as handle:
            handle.write(b"more")
        return answer

    with pytest.raises(NodeError, match="did not arrive as it is there"):
        run.keep(options, NodeClient("s1", changing))
    assert run.examine({**options, "purpose": "backup"}, "s1")["backups"] == []


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (
            {"key": "another key 123"},
            "was sealed with another key. Give the key that it was made with (muster_backup_key)",
        ),
        ({"key": "short"}, "key: is too short"),
        ({"key_file": "/nothing/there"}, "key_file: the file cannot be read"),
        ({"backup": "20200101T000000Z-0000"}, "the backup 20200101T000000Z-0000 is not there. The newest are: "),
        ({"store": "minio"}, "store: 'minio' is not a binding of cluster lab"),
        ({"machine": {"datastore": "mysql"}}, "machine.datastore"),
        ({"machine": {"free_bytes": "much"}}, "machine.free_bytes"),
    ],
)
def test_what_cannot_be_restored_is_said_in_one_line(options: Dict, changes: Dict, says: str) -> None:
    run.keep(options, REMOTE)
    with pytest.raises(MusterError) as refused:
        run.examine({**options, **changes}, "s1")
    assert says in str(refused.value)
    assert "another key 123" not in str(refused.value)


def test_a_damaged_archive_is_refused_before_it_goes_anywhere(options: Dict, tmp_path: pathlib.Path) -> None:
    kept = run.keep(options, REMOTE)["backup"]
    place = tmp_path / "state" / "lab" / "backups" / kept["id"] / "archive.sealed"
    place.write_bytes(place.read_bytes()[:-1])
    for work in (lambda: run.examine(options, "s1"), lambda: run.place(options, REMOTE)):
        with pytest.raises(MusterError, match="is damaged: its SHA-256 is not that of its manifest"):
            work()


def test_without_the_key_of_the_state_home_nothing_is_guessed(options: Dict, tmp_path: pathlib.Path) -> None:
    run.keep(options, REMOTE)
    (tmp_path / "state" / "lab" / "backup.key").unlink()
    with pytest.raises(InputError, match=r"key: is missing, and .*backup\.key is not there"):
        run.examine({**options, "machine": {"free_bytes": 9 << 30}}, "s1")
