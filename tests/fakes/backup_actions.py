# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""K3s and its API for the playbooks ``backup`` and ``restore``, as actions that take the place of the collection's.

The machine is a folder (``MUSTER_TEST_BACKUP``); its datastore is a real SQLite database, from which Nodes are read.
"""

from __future__ import annotations

import os
import pathlib
import sqlite3
import typing as t

from ansible.plugins.action import ActionBase

Dict = dict[str, t.Any]
FOLDER = "MUSTER_TEST_BACKUP"


def place(*names: str) -> pathlib.Path:
    """Return a path below the folder that stands for the machine."""
    return pathlib.Path(os.environ[FOLDER], *names)


def read_rows(database: pathlib.Path) -> list[tuple[int, str]]:
    """Return what is in a datastore, by its own rules of what was committed."""
    with sqlite3.connect(database) as connection:
        return connection.execute("SELECT id, name FROM kine ORDER BY id").fetchall()


class BackupFake(ActionBase):
    """An action that answers from the folder."""

    def run(self, tmp: t.Any = None, task_vars: t.Any = None) -> Dict:
        """Return the answer."""
        return {"changed": False, **self.answer(dict(self._task.args), str(task_vars["inventory_hostname"]))}

    def answer(self, args: Dict, host: str) -> Dict:
        """Return what the module would."""
        raise NotImplementedError


class BackupNode(BackupFake):
    """Places K3s, and starts it where its datastore and its authority are there."""

    def answer(self, args: Dict, host: str) -> Dict:
        """Return that it was done."""
        with open(place("asked"), "a", encoding="utf-8") as handle:
            handle.write(f"{args['state']} {host}\n")
        if args["state"] == "restarted":
            for name in ("db", "token", "tls/server-ca.crt", "tls/server-ca.key"):
                if not place("server", name).exists():
                    return {"failed": True, "msg": f"{host}: K3s is stopped again, it does not start: no {name}"}
            place("active").write_text("active")
        return {"changed": True}


class BackupKubeInfo(BackupFake):
    """Nodes, as the datastore has them."""

    def answer(self, args: Dict, host: str) -> Dict:
        """Return the Nodes."""
        names = [name.removeprefix("node/") for _id, name in read_rows(place("server", "db", "state.db"))]
        return {"resources": [{"metadata": {"name": name}} for name in names if not name.startswith("row")]}


class BackupKubeWait(BackupFake):
    """Finds everything ready where K3s runs."""

    def answer(self, args: Dict, host: str) -> Dict:
        """Return that it is."""
        return {"failed": place("active").read_text() != "active", "msg": "K3s does not run", "objects": []}
