# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The playbooks ``backup`` and ``restore``: a datastore that is written meanwhile, what is refused, and what comes back.

Real: the playbooks, the role ``k3s``, the actions that seal, keep and place, tar, and a SQLite database in K3s' own mode
(WAL). Stand-ins: K3s, its API (``tests/fakes/backup_actions.py``) and systemctl. With K3s on machines it is tests/lab.
"""

from __future__ import annotations

import base64
import json
import os
import pathlib
import shutil
import sqlite3
import subprocess
import sys
import threading
import typing as t

import pytest

from ansible_collections.muster.training.tests.fakes.backup_actions import read_rows

ROOT = pathlib.Path(__file__).resolve().parents[2]
ACTIONS = {"k3s_node": "BackupNode", "kube_info": "BackupKubeInfo", "kube_wait": "BackupKubeWait"}
VERSION = "v1.34.10+k3s1"
KEY = "a key that nobody guesses 7"
_LIMIT_S = 240
_SYSTEMCTL = """#!/bin/sh
read state < "$MUSTER_TEST_BACKUP/active"
case "$*" in
  is-active*) echo "$state";;
  *show*) echo LoadState=loaded; echo "ActiveState=$state";;
  *is-enabled*) echo enabled;;
  *start*|*stop*) echo "$*" >> "$MUSTER_TEST_BACKUP/units"
    case "$*" in *stop*) echo inactive;; *) echo active;; esac > "$MUSTER_TEST_BACKUP/active";;
esac
"""
# As strict as K3s: any other words are refused.
_K3S = """#!/bin/sh
server="$MUSTER_TEST_BACKUP/server"
case "$1 $2" in
  "--version ") echo "k3s version VERSION (5ta4d1n0)";;
  "etcd-snapshot save")
    [ "$3 $4 $5" = "--name muster --dir" ] || exit 1
    mkdir -p "$6"; cp "$server/db/etcd/member" "$6/muster-s1-1790000000";;
  "server --cluster-reset")
    [ "$(cat "$MUSTER_TEST_BACKUP/active")" = inactive ] || exit 1
    from="${3#--cluster-reset-restore-path=}"
    mkdir -p "$server/db/etcd"; cp "$from" "$server/db/etcd/member"
    echo "Managed etcd cluster membership has been reset" >&2;;
  *) exit 1;;
esac
""".replace("VERSION", VERSION)
FILES = {
    "server/token": "K10abc::server:secret-of-the-server",
    "server/tls/server-ca.crt": "the certificate of the authority",
    "server/tls/server-ca.key": "the key of the authority",
    "server/tls/etcd/peer-ca.key": "the key of the peers",
    "server/tls/serving-kube-apiserver.crt": "of this machine's addresses",
    "server/cred/passwd": "password of a user",
    "node/password": "password of the Node",
}
Dict = dict[str, t.Any]


class Server:
    """A machine with a control plane, and who runs the playbooks."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder, self.state = folder, folder / "state" / "default"
        self.database = folder / "server" / "db" / "state.db"
        _overlay(folder / "path" / "ansible_collections" / "muster" / "training")
        common = {"ansible_connection": "local", "ansible_become": False, "ansible_python_interpreter": sys.executable}
        self.hosts: dict[str, Dict] = {"s1": {"muster_k3s_role": "server"}, "a1": {"muster_k3s_role": "agent"}}
        self.common = common
        for name, text in FILES.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)
        self.database.parent.mkdir()
        with sqlite3.connect(self.database) as connection:
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("CREATE TABLE kine (id INTEGER PRIMARY KEY, name TEXT, value BLOB)")
            connection.executemany("INSERT INTO kine (name) VALUES (?)", [("node/s1",), ("node/old",)])
        programs = folder / "programs"
        programs.mkdir()
        for name, text in (("systemctl", _SYSTEMCTL), ("k3s", _K3S)):
            (programs / name).write_text(text)
            (programs / name).chmod(0o755)
        (folder / "active").write_text("active\n")
        (folder / "asked").touch()
        (folder / "units").touch()
        self.state.mkdir(parents=True)
        ca = base64.b64encode((folder / "server/tls/server-ca.crt").read_bytes()).decode()
        cluster = {"server": "https://s1:6443", "certificate-authority-data": ca}
        (self.state / "kubeconfig").write_text(json.dumps({"clusters": [{"cluster": cluster}]}))

    def backups(self) -> list[Dict]:
        """The manifests, the oldest first."""
        return [json.loads(place.read_text()) for place in sorted(self.state.glob("backups/*/manifest.json"))]

    def destroy(self) -> None:
        """Take its data away, as with a disk."""
        shutil.rmtree(self.folder / "server")
        shutil.rmtree(self.folder / "node")
        (self.folder / "active").write_text("inactive\n")

    def play(self, playbook: str, *words: str, code: int = 0, **values: t.Any) -> str:
        """Run a playbook and return what it printed, on one line."""
        inventory = {"muster_nodes": {"hosts": self.hosts, "vars": self.common}}
        (self.folder / "inventory.json").write_text(json.dumps(inventory))
        where = {
            "__k3s_server_data": str(self.folder / "server"),
            "__k3s_node_data": str(self.folder / "node"),
            "__k3s_kept": str(self.folder / "kept"),
            "__k3s_program": str(self.folder / "programs" / "k3s"),
        }
        extra = {"muster_backup_key": KEY, "k3s_version": VERSION, **where, **values}
        environment = {
            **os.environ,
            "PATH": f"{self.folder / 'programs'}:{os.environ['PATH']}",
            "ANSIBLE_COLLECTIONS_PATH": str(self.folder / "path"),
            "ANSIBLE_NOCOLOR": "1",
            "ANSIBLE_HOME": str(self.folder / "home"),
            "MUSTER_TEST_BACKUP": str(self.folder),
        }
        program = str(pathlib.Path(sys.executable).parent / "ansible-playbook")
        argv = [program, "-i", str(self.folder / "inventory.json"), f"muster.training.{playbook}"]
        done = subprocess.run(
            [*argv, "-e", json.dumps({**extra, "muster_state": {"path": str(self.folder / "state")}}), *words],
            env=environment,
            capture_output=True,
            text=True,
            timeout=_LIMIT_S,
            check=False,
        )
        said = done.stdout + done.stderr
        assert done.returncode == code, said
        assert KEY not in said and "secret-of-the-server" not in said
        return " ".join(said.split())


class Writer:
    """Commits two rows at a time, again and again."""

    def __init__(self, database: pathlib.Path) -> None:
        self.count, self._over = 0, threading.Event()
        self._thread = threading.Thread(target=self._write, args=(database,))

    def __enter__(self) -> Writer:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._over.set()
        self._thread.join()

    def _write(self, database: pathlib.Path) -> None:
        connection = sqlite3.connect(database, timeout=30)
        while not self._over.wait(0.01):
            rows = [(f"row/{self.count}/{half}", os.urandom(2000)) for half in "ab"]
            with connection:
                connection.executemany("INSERT INTO kine (name, value) VALUES (?, ?)", rows)
            self.count += 1
        connection.close()


def _overlay(root: pathlib.Path) -> None:
    """Make a collection that is this one, with other actions in the place of some."""
    (root / "plugins" / "action").mkdir(parents=True)
    for place, left_out in ((".", "plugins"), ("plugins", "action"), ("plugins/action", "__pycache__")):
        for path in (ROOT / place).iterdir():
            if path.name != left_out and not path.name.startswith(".") and path.stem not in ACTIONS:
                (root / place / path.name).symlink_to(path)
    for name, cls in ACTIONS.items():
        source = "ansible_collections.muster.training.tests.fakes.backup_actions"
        (root / "plugins" / "action" / f"{name}.py").write_text(f"from {source} import {cls} as ActionModule\n")


@pytest.fixture
def server(tmp_path: pathlib.Path) -> Server:
    return Server(tmp_path)


def test_a_datastore_that_is_written_meanwhile_is_backed_up_whole_and_comes_back(server: Server) -> None:
    said = server.play("backup", "--check")
    assert "a backup of sqlite of s1 would be taken, 0 are there" in said
    assert not (server.folder / "kept").exists() and not (server.state / "backups").exists()
    with Writer(server.database) as writer:
        while writer.count < 20:
            pass
        before = writer.count
        server.play("backup")
        during = writer.count
    assert during > before, "nothing was written while the backup was taken"
    (manifest,) = server.backups()
    folder = server.state / "backups" / manifest["id"]
    assert {place.stat().st_mode & 0o777 for place in folder.iterdir()} == {0o600}
    assert b"secret-of-the-server" not in (folder / "archive.sealed").read_bytes()
    assert (server.folder / "units").read_text() == "" and not (server.folder / "kept" / "backup").exists()

    server.destroy()
    assert f"backup {manifest['id']} of sqlite" in server.play("restore", "--check")
    assert not (server.folder / "server").exists() and (server.folder / "asked").read_text() == ""
    said = server.play("restore")
    assert "not in the inventory: old (kube_node with state absent removes a Node)" in said
    assert "not in the cluster: a1 (the playbook cluster lets them join)" in said
    names = [name for _id, name in read_rows(server.database) if name.startswith("row")]
    assert names == [f"row/{number}/{half}" for number in range(len(names) // 2) for half in "ab"]
    assert before <= len(names) // 2 <= during
    for name, text in FILES.items():
        # What is of a machine's addresses K3s makes anew.
        assert (server.folder / name).exists() != ("serving" in name)
        assert "serving" in name or (server.folder / name).read_text() == text
    assert (server.folder / "active").read_text() == "active"
    again = server.play("restore")
    assert "was restored to s1 already" in again
    assert again.partition("PLAY RECAP")[2].count("changed=0") == again.partition("PLAY RECAP")[2].count("changed=")

    server.play("backup", muster_backup_keep=1)
    (newer,) = server.backups()
    assert newer["id"] > manifest["id"] and not folder.exists()


def test_what_must_not_be_restored_is_refused_before_anything_is_changed(server: Server) -> None:
    server.play("backup")
    (manifest,) = server.backups()
    with sqlite3.connect(server.database) as connection:
        connection.execute("INSERT INTO kine (name) VALUES ('row/later')")

    def is_refused(line: str, **values: t.Any) -> None:
        assert line in server.play("restore", code=2, **values)
        assert len(read_rows(server.database)) == 3 and (server.folder / "asked").read_text() == ""

    is_refused("s1: K3s runs on it with data of this cluster. Changes since the backup would be lost")
    is_refused("was sealed with another key", muster_backup_key="another key 12345")
    is_refused("an older K3s does not read what a newer one has written", k3s_version="v1.33.1+k3s1")
    archive = server.state / "backups" / manifest["id"] / "archive.sealed"
    whole = archive.read_bytes()
    archive.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    is_refused("is damaged: its SHA-256 is not that of its manifest", muster_restore_overwrite=True)
    archive.write_bytes(whole)
    server.play("restore", muster_restore_overwrite=True)
    assert len(read_rows(server.database)) == 2
    assert len(read_rows(server.folder / "kept" / "before-restore" / "db" / "state.db")) == 3


def test_a_datastore_that_cannot_be_copied_while_k3s_runs_is_copied_while_it_is_stopped(server: Server) -> None:
    server.database.write_text("no SQLite")
    server.play("backup")
    assert (server.folder / "units").read_text().split() == ["stop", "k3s", "start", "k3s"]
    assert (server.folder / "active").read_text().strip() == "active" and len(server.backups()) == 1


def test_a_snapshot_of_etcd_is_saved_and_etcd_begins_with_it(server: Server) -> None:
    shutil.rmtree(server.database.parent)
    (server.database.parent / "etcd").mkdir(parents=True)
    member = server.database.parent / "etcd" / "member"
    member.write_text("what etcd holds")
    server.hosts |= {"s2": {"muster_k3s_role": "server"}, "s3": {"muster_k3s_role": "server"}}
    server.play("backup")
    assert [item["datastore"] for item in server.backups()] == ["etcd"]
    member.write_text("changed since")
    # All servers have one folder here, so the second one, whose datastore is removed, does not start.
    said = server.play("restore", code=2, muster_restore_overwrite=True, __k3s_datastore=str(server.database.parent))
    assert "Let the other servers join it again" in said
    assert (server.folder / "asked").read_text().split("\n")[:3] == ["present s1", "present s1", "restarted s1"]
