# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The drill of ``guide_hosts`` that cuts a host off its network, as the guide writes it: real links, root on the host."""

from __future__ import annotations

import json
import pathlib
import sys
import typing as t

import pytest

from ansible_collections.muster.training.tests.e2e import conftest
from ansible_collections.muster.training.tests.e2e.cut_world import STEPS, CutWorld, lacking
from ansible_collections.muster.training.tests.support import debian
from ansible_collections.muster.training.tests.support.shell_blocks import Reader, newest_run

# The link is down for a minute.
pytestmark = [pytest.mark.usefixtures("sshd_works"), pytest.mark.long]
BLOCKS = ("guide_hosts-2",)
# The drill strikes at step 50, the link is back a minute later, and some steps have to follow.
COUNTED = STEPS.replace('while not (here / "finish").exists():', "while step < 500:")


@pytest.fixture
def world(tmp_path: pathlib.Path) -> t.Iterator[CutWorld]:
    """Two hosts behind links, which can cut themselves off."""
    if reason := lacking():
        conftest.lacking(reason)
    if not debian.program("iptables") and (reason := debian.obtain("nft", "nftables")):
        conftest.lacking(reason)
    found = CutWorld(tmp_path)
    try:
        found.up()
        yield found
    finally:
        found.close()


def test_a_cut_of_a_minute_is_noticed_and_passes(world: CutWorld) -> None:
    state = world.home / ".local" / "state" / "muster"
    reader = Reader(world.root, world.environment())
    reader.prefix = world.prefix
    group = json.loads(world.inventory.read_text())["all"]["children"]["muster_nodes"]
    hosts = {f"gpu-{number}": own for number, own in enumerate(group["hosts"].values(), 1)}
    checkpoints = {"path": str(world.root / "shared"), "grace_s": 1, "interval_steps": 10}
    job = {"name": "cut", "nodes": 2, "launcher": "command", "checkpoints": checkpoints, "restart": {"wait_s": 600}}
    job["command"] = [sys.executable, "-I", "-S", "-c", COUNTED, str(world.root)]
    own = {"muster_job": job, "muster_node_state": str(world.nodes), "muster_training_python": sys.executable}
    reader.write("inventory/hosts.yml", {"muster_nodes": {"hosts": hosts, "vars": {**group["vars"], **own}}})
    reader.run(BLOCKS[0])
    (place,) = state.glob(f"*/runs/{newest_run(state)}/run.json")
    drill = json.loads(place.read_text())["drill"]
    assert drill["resumed"] is True and 0 < drill["seconds_to_notice"] <= 30, drill
