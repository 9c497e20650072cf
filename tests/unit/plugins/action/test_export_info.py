# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The machines of an inventory as a file, through the playbook ``export``."""

from __future__ import annotations

import json
import pathlib
import re
import subprocess
import sys

from ansible_collections.muster.training.tests.support.run_inventory import environment

PLAYBOOK = pathlib.Path(sys.executable).parent / "ansible-playbook"
CANARY = "pw-canary-55cd0e"


def play(folder: pathlib.Path, *args: str) -> tuple[int, str]:
    argv = [str(PLAYBOOK), "-i", str(folder / "hosts.yml"), "muster.training.export", *args]
    done = subprocess.run(
        argv, capture_output=True, text=True, env=environment(folder), cwd=folder, check=False, timeout=120
    )
    return done.returncode, done.stdout + done.stderr


def test_an_inventory_becomes_a_file_that_ssh_reads(tmp_path: pathlib.Path) -> None:
    hosts = {
        "spark-1": {"ansible_host": "192.168.1.31", "ansible_user": "{{ login }}", "login": "nv"},
        "spark-2": {"ansible_host": "192.168.1.32", "ansible_password": CANARY, "ansible_ssh_common_args": "-J jump"},
    }
    inventory = {"all": {"children": {"muster_nodes": {"hosts": hosts}}, "vars": {"muster_cluster": "desk"}}}
    (tmp_path / "hosts.yml").write_text(json.dumps(inventory))
    file = tmp_path / "muster-desk.ssh_config"
    code, text = play(tmp_path, "--check")
    assert code == 0 and not file.exists(), text
    code, text = play(tmp_path)
    assert code == 0 and "changed=1" in text, text
    assert f"Include {file}" in text and "spark-2: its password is not exported" in text
    assert file.stat().st_mode & 0o777 == 0o600 and CANARY not in text + file.read_text()
    argv = ["ssh", "-G", "-F", str(file), "muster-desk-spark-1"]
    shown = subprocess.run(argv, capture_output=True, text=True, check=True, stdin=subprocess.DEVNULL).stdout
    assert {"hostname 192.168.1.31", "user nv", "port 22"} < set(shown.splitlines())
    assert "changed=0" in play(tmp_path)[1]


def test_an_inventory_without_machines_is_refused(tmp_path: pathlib.Path) -> None:
    (tmp_path / "hosts.yml").write_text("all: {hosts: {}}\n")
    code, text = play(tmp_path)
    line = "hosts: no host is reached by SSH. Name the inventory with -i"
    assert code == 2 and line in re.sub(r"\s+", " ", text)
    code, text = play(tmp_path, "-e", "muster_export=sync")
    assert code == 2 and "muster_export" in text and "ssh_config" in text
