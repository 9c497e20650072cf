# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Machines found by Tailscale from preflight over the fabric to a trained job; nothing but the tailnet lists them."""

from __future__ import annotations

import json
import pathlib
import typing as t
from collections.abc import Iterator

import pytest

from ansible_collections.muster.training.tests.e2e.playbook_world import World
from ansible_collections.muster.training.tests.e2e.rent_world import RentWorld
from ansible_collections.muster.training.tests.e2e.walk_world import LIMIT_S, Machines, Walk, last_step, read_steps
from ansible_collections.muster.training.tests.fakes.tailscale import FakeTailscale

pytestmark = [pytest.mark.usefixtures("sshd_works"), pytest.mark.torch]
NAMES = ("spark-01", "spark-02")


class TailnetWalk(Walk):
    """A tailnet of two devices; ssh's own configuration stands for MagicDNS."""

    def __init__(self, root: pathlib.Path, machines: Machines, python: str) -> None:
        for name in ("net", "train"):
            (root / name).mkdir()
        super().__init__(root, machines, World(root / "train"))
        self.python = python
        self.net = RentWorld(root / "net", FakeTailscale, "tailscale")
        config = []
        for name, (address, port, user) in zip(NAMES, machines.endpoints, strict=True):
            t.cast(FakeTailscale, self.net.api).device(name, tags=["tag:gpu"], addresses=[address])
            config += [f"Host {name}.tail1234.ts.net", f"  HostName {address}", f"  Port {port}", f"  User {user}"]
        known = root / "machines" / "local_nodes" / "known_hosts"
        (root / "ssh_config").write_text("\n".join([*config, "Host *", f"  UserKnownHostsFile {known}", ""]))

    @property
    def variables(self) -> dict[str, str]:
        return {**super().variables, "ANSIBLE_SSH_ARGS": f"-F {self.root / 'ssh_config'} -C"}

    @property
    def values(self) -> dict[str, t.Any]:
        state = {"muster_cluster": "home", "muster_state": {"path": str(self.train.state)}}
        return {**super().values, **state, "muster_training_python": self.python, "muster_fabric_allow_unproven": True}

    def play(self, playbook: str, inventory: str, **extra: t.Any) -> str:
        done = self.start(playbook, inventory, **extra).wait(LIMIT_S)
        assert done.code == 0 and "Traceback" not in done.output, done.output
        return done.output


@pytest.fixture
def walk(tmp_path: pathlib.Path, torch_python: str) -> Iterator[TailnetWalk]:
    machines = Machines(tmp_path / "machines", 2)
    found = TailnetWalk(tmp_path, machines, torch_python)
    with found.net.running():
        yield found
        found.train.close()
    machines.close()
    assert found.net.api.violations == []


def test_from_preflight_over_the_fabric_to_a_trained_job(walk: TailnetWalk) -> None:
    url = walk.net.url.removesuffix("/api/v2")
    inventory = walk.inventory("mixed", ["home.tailscale.yml"], api_url=url)

    shown = walk.play("preflight", inventory)
    for name in NAMES:
        (row,) = (line for line in shown.splitlines() if line.strip().startswith(f'"{name} '))
        assert "GiB" in row and ("x86_64" in row or "aarch64" in row)
    assert "2 machines, 0 GPUs" in shown

    walk.play("verify_fabric", inventory)
    folder = walk.train.state / "home"
    (island,) = json.loads((folder / "fabric.json").read_text())["islands"]
    # The kernel's boot id, which only the machines know, and no name or address of the tailnet.
    assert (island["island"], island["lane"]) == ("machine", "C") and island["ranks"]["seen"] == 2
    assert island["wrong_values"] == 0

    walk.train.finish()
    walk.play("train", inventory, muster_job=walk.job())
    run = folder / "runs" / walk.train.run_id
    record = json.loads((run / "run.json").read_text())
    assert record["outcome"] == "succeeded" and record["hosts"] == list(NAMES)
    assert record["world_size"] == {"asked": 2, "seen": 2} and record["backend"] == "hosts"
    assert read_steps(run) and last_step(run) == 0
