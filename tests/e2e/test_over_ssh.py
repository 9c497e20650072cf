# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The local nodes over an sshd of the user's own, as ``bootstrap`` starts it: the path that real machines take."""

from __future__ import annotations

import os
import typing as t

import pytest

from ansible_collections.muster.training.tests.e2e.playbook_world import World, everything, until
from ansible_collections.muster.training.tests.e2e.test_interruptions import assert_ends_well

pytestmark = pytest.mark.usefixtures("sshd_works")


class OverSsh:
    """Playbooks of a world whose nodes are reached over ssh."""

    def __init__(self, world: World, named: bool) -> None:
        self.world = world
        # The default state home is $XDG_STATE_HOME/muster.
        world.state = world.root / ("state" if named else "muster")
        self.env = {
            "XDG_STATE_HOME": str(world.root),
            "ANSIBLE_PIPELINING": "1",
        }
        self.extra: dict[str, t.Any] = {} if named else {"muster_state": None}

    def play(self, playbook: str, job: t.Any = None, **extra: t.Any) -> t.Any:
        """Run a playbook to its end and expect that it went well."""
        result = self.world.play(playbook, job, env=self.env, **self.extra, **extra)
        assert result.code == 0, result.output
        return result

    def daemons(self) -> list[int]:
        """Return the sshd processes of this world."""
        place = os.fsencode(self.world.root)
        return [pid for pid, command, _ in everything() if b"sshd" in command and place in command]


@pytest.fixture
def over_ssh(world: World, request: pytest.FixtureRequest) -> t.Iterator[OverSsh]:
    """Local nodes with their sshd, which is ended afterwards."""
    found = OverSsh(world, named=getattr(request, "param", False))
    found.play("bootstrap", training_env_requirements=[])
    yield found
    found.play("local_nodes_absent")


@pytest.mark.parametrize(
    "over_ssh",
    [
        pytest.param(False, id="default state home", marks=pytest.mark.long),
        pytest.param(True, id="named state home"),
    ],
    indirect=True,
)
def test_a_job_over_ssh(over_ssh: OverSsh) -> None:
    """The record says how the nodes were reached, and the sshd is gone after local_nodes_absent."""
    world = over_ssh.world
    assert over_ssh.play("bootstrap", training_env_requirements=[]).changed == 0
    assert_ends_well(world, world.start(job=world.rank_job(), env=over_ssh.env, **over_ssh.extra))
    assert world.record()["derived"]["connection"] == "ssh"
    assert over_ssh.daemons()
    assert over_ssh.play("local_nodes_absent").changed == 1
    assert not over_ssh.daemons() and not (world.state / "local_nodes").exists()


def test_ranks_outlive_the_connection(over_ssh: OverSsh) -> None:
    """ansible-playbook and every ssh session end; the ranks work on, and the same command follows them to the end."""
    world = over_ssh.world
    first = world.start(job=world.rank_job(), env=over_ssh.env, **over_ssh.extra)
    until(lambda: len(world.ranks()) == 2, "both ranks")
    before = world.processes()
    assert over_ssh.play("local_nodes_absent").changed == 1
    first.kill(9)
    first.wait()
    assert world.processes() == before
    over_ssh.play("bootstrap", training_env_requirements=[])
    assert_ends_well(world, world.start(job=world.rank_job(), env=over_ssh.env, **over_ssh.extra))
    assert len((world.root / "began").read_text().splitlines()) == 2
