# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Machines of which a file says what they are, and playbooks that change them wave by wave.

The playbooks are those of the collection, of which some actions are replaced by ``tests/fakes``.
"""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import typing as t

ROOT = pathlib.Path(__file__).resolve().parents[2]
Dict = dict[str, t.Any]


class WaveFleet:
    """The file ``place`` with what each host is and what was asked, and who runs a playbook."""

    def __init__(self, folder: pathlib.Path, place: pathlib.Path, hosts: t.Iterable[str]) -> None:
        self.folder, self.place = folder, place
        self.collection = folder / "path" / "ansible_collections" / "muster" / "training"
        common = {"ansible_connection": "local", "ansible_become": False, "ansible_python_interpreter": sys.executable}
        roles = {name: {"muster_k3s_role": "server" if name[0] == "s" else "agent"} for name in hosts}
        (folder / "inventory.json").write_text(json.dumps({"muster_nodes": {"hosts": roles, "vars": common}}))

    def overlay(self, actions: t.Mapping[str, str], real: t.Iterable[str] = (), roles: t.Sequence[str] = ()) -> None:
        """Make a collection that is this one, with other actions and without the roles ``roles``.

        :param actions: by the name of an action ``MODULE.CLASS`` below ``tests/fakes``. :param real: those that stay.
        """
        root = self.collection
        left_out = {".": ("plugins", *(["roles"] if roles else [])), "plugins": ("action",)}
        left_out |= {"roles": tuple(roles)} if roles else {}
        for place, names in left_out.items():
            (root / place).mkdir(parents=True, exist_ok=True)
            for path in (ROOT / place).iterdir():
                if path.name not in names and not path.name.startswith("."):
                    (root / place / path.name).symlink_to(path)
        (root / "plugins" / "action").mkdir()
        for name in real:
            (root / "plugins" / "action" / f"{name}.py").symlink_to(ROOT / "plugins" / "action" / f"{name}.py")
        for name, found in actions.items():
            module, cls = found.split(".")
            line = f"from ansible_collections.muster.training.tests.fakes.{module} import {cls} as ActionModule\n"
            (root / "plugins" / "action" / f"{name}.py").write_text(line)

    def change(self, name: str, **values: t.Any) -> None:
        """Set what a machine is, or what fails on it, and forget what was asked."""
        state = json.loads(self.place.read_text())
        state["hosts"][name] |= values
        self.place.write_text(json.dumps({**state, "asked": []}))

    @property
    def asked(self) -> list[str]:
        """What was done to machines and cluster, in order, since the last change."""
        return [line for line in json.loads(self.place.read_text())["asked"] if not line.startswith("read ")]

    def closed(self) -> list[str]:
        """The machines that take no pods."""
        hosts = json.loads(self.place.read_text())["hosts"]
        return sorted(name for name, own in hosts.items() if own.get("closed"))

    def run(
        self, playbook: str, *words: str, code: int, limit_s: float, env: t.Mapping[str, str], **values: t.Any
    ) -> str:
        """Run a playbook with these variables; return what it printed, on one line."""
        program = str(pathlib.Path(sys.executable).parent / "ansible-playbook")
        environment = {
            **os.environ,
            "ANSIBLE_COLLECTIONS_PATH": str(self.folder / "path"),
            "ANSIBLE_NOCOLOR": "1",
            "ANSIBLE_HOME": str(self.folder / "home"),
            "MUSTER_TEST_WAVES": str(self.place),
            **env,
        }
        given = json.dumps({"muster_state": {"path": str(self.folder / "state")}, **values})
        done = subprocess.run(
            [program, "-i", str(self.folder / "inventory.json"), f"muster.training.{playbook}", "-e", given, *words],
            env=environment,
            capture_output=True,
            text=True,
            timeout=limit_s,
            check=False,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return " ".join((done.stdout + done.stderr).split())
