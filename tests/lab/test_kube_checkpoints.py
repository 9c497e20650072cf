# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checkpoints on a folder of each node's own: pods that do not see one folder do not start their program."""

from __future__ import annotations

import pathlib
import typing as t

import pytest

from ansible_collections.muster.training.tests.lab.kube_plays import Controller, command
from ansible_collections.muster.training.tests.support.kube_lab import KubeLab, Team, kube_lab, team

__all__ = ["kube_lab", "team"]


@pytest.fixture
def controller(kube_lab: KubeLab, team: Team, tmp_path: pathlib.Path) -> Controller:
    """A controller with the rights of an administrator in the team's namespace."""
    return Controller(kube_lab, team, tmp_path)


def on_local_disks(space: str, **checkpoints: t.Any) -> dict[str, t.Any]:
    """Return a job of one pod on each of two nodes, whose checkpoints lie on the nodes' own disks."""
    mounts = [{"name": "local", "path": "/local", "host_path": "/var/tmp"}]
    where = {"path": f"/local/{space}", **checkpoints}
    return command("echo", "ran", mounts=mounts, checkpoints=where, placement={"network_mode": "host"})


def test_pods_that_do_not_see_one_folder_start_nothing(controller: Controller) -> None:
    space = controller.team.namespace
    code, output = controller.play("train", on_local_disks(space))
    assert code != 0 and f"does not see in /local/{space}/" in output, output
    for way in ("Mount one shared file system", "checkpoints.path", "checkpoints.shared: false"):
        assert way in output
    record, folder = controller.run()
    assert (record["outcome"], record["exit_code"], record["attempts"]) == ("failed", 78, []), record["detail"]
    assert not any("\nran\n" in place.read_text() for place in (folder / "logs").iterdir())
    code, output = controller.play("train", on_local_disks(space, shared=False))
    assert code == 0 and "(checkpoints.shared: false)" in output, output
