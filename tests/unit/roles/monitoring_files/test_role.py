# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files for a Prometheus of one's own, as the role writes them: the program itself reads them."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys

from ansible_collections.muster.training.tests.support.prometheus_program import find
from ansible_collections.muster.training.tests.support.run_inventory import environment

INVENTORY = """
[muster_nodes]
gpu-1 ansible_host=10.0.0.1
gpu-2 muster_address=fd00::2
other ansible_host=10.0.0.9
"""


def play(root: pathlib.Path, *words: str) -> str:
    (root / "hosts.ini").write_text(INVENTORY)
    values = {"monitoring_files_folder": str(root / "out"), "monitoring_files_dcgm_port": 9400}
    task = {"ansible.builtin.include_role": {"name": "muster.training.monitoring_files"}, "vars": values}
    about = {"hosts": "localhost", "connection": "local", "gather_facts": False, "tasks": [task]}
    about["vars"] = {"ansible_python_interpreter": sys.executable}
    (root / "play.yml").write_text(json.dumps([about]))
    program = pathlib.Path(sys.executable).parent / "ansible-playbook"
    argv = [os.fspath(program), "-i", "hosts.ini", "play.yml", *words]
    done = subprocess.run(argv, cwd=root, env=environment(root), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_prometheus_reads_what_the_role_writes(tmp_path: pathlib.Path) -> None:
    assert "changed=4" in play(tmp_path) and "changed=0" in play(tmp_path, "--check")
    assert len([*(tmp_path / "out" / "dashboards").glob("*.json")]) == 3
    text = (tmp_path / "out" / "muster-scrape.yml").read_text()
    for part in (
        '["10.0.0.1:9100"]',
        '["[fd00::2]:9100"]',
        'node: "gpu-2"',
        "scrape_timeout: 14s",
        "job_name: muster-dcgm",
        '"10.0.0.9:9400"',
    ):
        assert part in text, text
    config = {"rule_files": ["out/muster.rules.yml"], "scrape_config_files": ["out/muster-scrape.yml"]}
    (tmp_path / "prometheus.yml").write_text(json.dumps(config))
    done = subprocess.run(
        [find("promtool"), "check", "config", "prometheus.yml"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0 and "SUCCESS" in done.stdout, done.stdout + done.stderr
