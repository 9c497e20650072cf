# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the role shows and refuses of two Sparks, by their recorded facts, in Ansible itself."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
import typing as t

import pytest

from ansible_collections.muster.training.tests.support.run_inventory import environment
from ansible_collections.muster.training.tests.unit.plugins.plugin_utils._fabric.fleets import fixture_node

PLAY = """
- hosts: all
  gather_facts: false
  connection: local
  tasks:
    - ansible.builtin.include_role: {name: muster.training.preflight, tasks_from: machines}
    - ansible.builtin.debug: {msg: both may begin}
"""


def play(folder: pathlib.Path, kind: str, **of_second: t.Any) -> tuple[int, str]:
    first, second = (fixture_node(kind, name, number).to_dict() for name, number in (("a", 31), ("b", 32)))
    hosts = {
        name: {"__preflight_node": {"record": record}, "muster_address": record["addresses"]["lan"][0]["address"]}
        for name, record in (("a", first), ("b", {**second, **of_second}))
    }
    (folder / "hosts.yml").write_text(json.dumps({"all": {"hosts": hosts}}))
    (folder / "play.yml").write_text(PLAY)
    argv = [str(pathlib.Path(sys.executable).parent / "ansible-playbook"), "-i", "hosts.yml", "play.yml"]
    done = subprocess.run(
        argv, capture_output=True, text=True, env=environment(folder), cwd=folder, check=False, timeout=120
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("kind", ["dgx_spark", "dgx_spark_two_cables"])
def test_two_sparks_as_they_should_be(tmp_path: pathlib.Path, kind: str) -> None:
    code, text = play(tmp_path, kind)
    assert code == 0 and "both may begin" in text and "2 machines, 2 GPUs" in text and "cx7" not in text, text


def test_a_note_does_not_refuse_and_a_problem_does(tmp_path: pathlib.Path) -> None:
    record = fixture_node("dgx_spark", "b", 32).to_dict()
    nics = [{**item, "mtu": 1500} for item in record["nics"]]
    code, text = play(tmp_path, "dgx_spark", nics=nics)
    assert code == 0 and "b: cx7_mtu: enp1s0f1np1 has MTU 1500 instead of 9000" in text
    lan = [{**item, "address": "192.168.100.132"} for item in record["addresses"]["lan"]]
    code, text = play(tmp_path, "dgx_spark", addresses={"lan": lan})
    assert code == 2 and "b: cx7_addresses: both halves of port 1" in text and "both may begin" not in text
