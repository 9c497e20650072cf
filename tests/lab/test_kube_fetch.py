# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files of a run in pods come to the controller, from a claim and from the nodes' own disks; nothing of it stays."""

from __future__ import annotations

import hashlib
import pathlib
import time
import typing as t

import pytest

from ansible_collections.muster.training.tests.lab.kube import plan
from ansible_collections.muster.training.tests.lab.kube_plays import Controller, command
from ansible_collections.muster.training.tests.support.kube_lab import NOTES, KubeLab, Team, kube_lab, team

__all__ = ["kube_lab", "team"]
MIB = 40
# Rank 0 writes one file that all see, and each rank its own part.
SAVE = """
mkdir -p $MUSTER_CHECKPOINT_DIR/step-3
[ $RANK != 0 ] || head -c {bytes} /dev/urandom > $MUSTER_CHECKPOINT_DIR/step-3/model.bin
hostname > $MUSTER_CHECKPOINT_DIR/step-3/part-$RANK
"""


@pytest.fixture
def controller(kube_lab: KubeLab, team: Team, tmp_path: pathlib.Path) -> Controller:
    """A controller with the rights of an administrator in the team's namespace."""
    return Controller(kube_lab, team, tmp_path)


def save(controller: Controller, mount: dict[str, t.Any]) -> dict[str, t.Any]:
    """Return a job that saves below a mount."""
    return command(
        "sh",
        "-c",
        SAVE.format(bytes=MIB << 20),
        mounts=[{"name": "kept", "path": "/kept", **mount}],
        checkpoints={"path": f"/kept/{controller.team.namespace}"},
    )


def claim(controller: Controller) -> dict[str, t.Any]:
    """Make a claim that all nodes can mount; return the mount."""
    space = controller.team.namespace
    size = {"storage": "1Gi"}
    about = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
    volume = {**about, "capacity": size, "hostPath": {"path": plan.SHARED}, "claimRef": {"namespace": space}}
    volume["claimRef"] |= {"name": "kept"}
    wanted = {**about, "volumeName": f"{space}-kept", "resources": {"requests": size}}
    controller.lab.cluster.apply(
        [
            {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": f"{space}-kept"}, "spec": volume},
            {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "metadata": {"name": "kept", "namespace": space},
                "spec": wanted,
            },
        ]
    )
    return {"pvc": "kept"}


def left(controller: Controller) -> list[str]:
    """Return the Jobs that are there."""
    found = controller.lab.items(f"/apis/batch/v1/namespaces/{controller.team.namespace}/jobs")
    return [item["metadata"]["name"] for item in found if item["metadata"]["name"].startswith("muster-files")]


@pytest.mark.parametrize("kind", ["a claim", "a disk of all nodes"])
def test_a_checkpoint_is_fetched_once(controller: Controller, kind: str) -> None:
    mount = claim(controller) if kind == "a claim" else {"host_path": plan.SHARED}
    try:
        code, output = controller.play("train", save(controller, mount), muster_run_id="saves")
        assert code == 0, output
        code, output = controller.play("fetch", check=True)
        assert code == 0 and "check mode starts none" in output, output
        began = time.monotonic()
        code, output = controller.play("fetch")
        seconds = time.monotonic() - began
        assert code == 0 and "fetched 3 of 3 files, 41.9 MB to" in output, output
        NOTES.append(f"fetch of {MIB} MiB from {kind} of pods: {seconds:.1f} s, the pod's start included")
        _record, folder = controller.run("saves")
        files = folder / "files" / "step-3"
        names = ("model.bin", "part-0", "part-1")
        place = f"{plan.SHARED}/{controller.team.namespace}/saves/step-3"
        held = controller.lab.on_node(
            controller.lab.nodes[0], "sha256sum", *(f"{place}/{name}" for name in names)
        ).split()[::2]
        assert [hashlib.sha256((files / name).read_bytes()).hexdigest() for name in names] == held
        assert (files / "model.bin").stat().st_size == MIB << 20
        code, output = controller.play("fetch")
        assert code == 0 and "changed=0" in output, output
        code, output = controller.play("fetch", muster_fetch_paths=["*.safetensors"])
        assert code != 0 and "Files there are step-3/model.bin, step-3/part-0, step-3/part-1" in output, output
        assert left(controller) == []
    finally:
        controller.lab.on_node(controller.lab.nodes[0], "rm", "-rf", f"{plan.SHARED}/{controller.team.namespace}")
        controller.lab.api.ask("DELETE", f"/api/v1/persistentvolumes/{controller.team.namespace}-kept")
