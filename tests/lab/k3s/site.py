# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bare machines and what the playbook ``site`` needs to train on them: a bundle, a job, a claim that all of them see."""

from __future__ import annotations

import contextlib
import pathlib
import typing as t

from ansible_collections.muster.training.tests.lab import image, nodes
from ansible_collections.muster.training.tests.lab.k3s import machines
from ansible_collections.muster.training.tests.lab.k3s.operator import SERVER, Operator
from ansible_collections.muster.training.tests.lab.k3s.session import open_operator
from ansible_collections.muster.training.tests.lab.kube import images, manifests, plan
from ansible_collections.muster.training.tests.lab.kube.binaries import Binaries

ROOT = pathlib.Path(__file__).resolve().parents[3]
IMAGE = manifests.image_name(images.TRAINING)
INTERVAL = 10
Dict = dict[str, t.Any]
PHASES = ["preflight", "devices", "cluster", "jobs", "fabric", "train", "report"]
AUDIT = [f"audit-policy-file={machines.AUDIT_POLICY}", f"audit-log-path={machines.AUDIT_LOG}"]


@contextlib.contextmanager
def open_site(
    size: int = 2, recipe: image.Recipe = image.KUBE, more: t.Callable[[Operator], Dict] = lambda _operator: {}
) -> t.Iterator[Operator]:
    """Machines, booted; nothing of them may be left at the end. The first is the server, all others are agents.

    :param more: returns further images of the bundle, name to archive.
    """
    with open_operator(size=size, recipe=recipe) as made:
        home = made.lab.podman.home
        archive = images.Archives(home, Binaries(home)).get(images.TRAINING)
        # All files and images come from a bundle: no machine needs a network.
        sources = {
            name: pathlib.Path(made.values.pop(f"gang_scheduling_{name}_source")) for name in ("jobset", "kueue")
        }
        folder = machines.make_bundle(made.lab.folder, made.release, sources, (IMAGE, archive), more=more(made))
        del made.values["k3s_source"]
        made.hosts = {**made.hosts, SERVER: {**made.hosts[SERVER], "k3s_config": {"kube-apiserver-arg": AUDIT}}}
        made.values |= {
            "muster_job": job(size),
            "muster_bundle": str(folder),
            "storage_claim_host_path": nodes.SHARED,
            "storage_claim_host_path_shared": True,
            # Torch of this machine is a folder of the nodes.
            "team_pod_security": "privileged",
            # The links of one machine have no figure to expect.
            "muster_fabric_allow_unproven": True,
        }
        yield made


def job(size: int = 2) -> dict[str, t.Any]:
    """Return a job of as many pods that train by DDP over gloo, with checkpoints on the claim."""
    words: dict[str, int | str] = {"--steps": 50, "--checkpoint-every": INTERVAL, "--batch-size": 8, "--timeout": 60}
    words["--data"] = "{run_dir}/data/text/LICENSE"
    return {
        "name": "char-lm",
        "image": IMAGE,
        "nodes": size,
        "code": {"ref": str(ROOT / "examples" / "char_lm")},
        "script": "train.py",
        "args": [str(word) for pair in words.items() for word in pair],
        "datasets": [{"name": "text", "path": str(ROOT / "LICENSE")}],
        # Both machines are this one: threads that spin while they wait would take the processors from the other rank.
        "env": {"PYTHONPATH": plan.TORCH, "OMP_NUM_THREADS": "1"},
        "mounts": [
            {"name": "torch", "path": plan.TORCH, "host_path": plan.TORCH, "read_only": True},
            {"name": "checkpoints", "path": "/checkpoints", "pvc": "checkpoints"},
        ],
        "checkpoints": {"path": "/checkpoints", "interval_steps": INTERVAL, "grace_s": 5},
        # More than half of a machine: the queue's topology would put both pods on one.
        "resources": {"cpu": 1.1, "memory": "2Gi"},
    }
