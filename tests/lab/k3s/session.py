# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bare machines and their operator for a test module: booted before it, and proved to be gone after it."""

from __future__ import annotations

import contextlib
import pathlib
import tempfile
import typing as t

from ansible_collections.muster.training.tests.support.kube_lab import NOTES, not_run

from .. import host, image, podman, traces
from . import machines
from .operator import Operator

State = t.Mapping[str, t.Sequence[str]]
_OWN = ("process ", "/var/lib/rancher/", "/var/lib/kubelet/", "/var/lib/cni/", "/var/lib/etcd/")
# Links, routes, mounts and rules of single pods.
_PER_POD = ("link ", "mount /var/lib/kubelet/pods/", "mount /run/k3s/", "rule ", "route ")
# What is made anew with each cluster: the paths have to be the same, not what is in them.
_OF_ONE_CLUSTER = (
    "/etc/rancher/k3s/muster-token",
    "/etc/rancher/k3s/k3s.yaml",
    "/etc/rancher/node/",
    "/var/lib/muster/",
)


@contextlib.contextmanager
def open_machines(
    recipe: image.Recipe = image.KUBE, size: int = 2, behind: t.Collection[str] = ()
) -> t.Iterator[machines.BareLab]:
    """Bare machines of a root file system, booted, some of them ``behind`` a router; nothing of them may be left."""
    reason = host.unmet()
    if reason:
        not_run(reason)
    try:
        host.ensure_programs()
        tool = podman.Podman(podman.cache_home())
        traces.sweep(tool)
        root_image = image.ensure(tool, recipe)
        machines.prepare(tool)
    except host.LabError as error:
        not_run(str(error))
    lab = machines.BareLab(tool, pathlib.Path(tempfile.mkdtemp(prefix="muster-lab-")), size, behind)
    try:
        lab.up(root_image)
        yield lab
    finally:
        left = lab.down()
    assert left == [], f"the lab left something behind: {left}"


@contextlib.contextmanager
def open_operator(
    size: int = 2, behind: t.Collection[str] = (), recipe: image.Recipe = image.KUBE
) -> t.Iterator[Operator]:
    """Bare machines and who runs playbooks on them."""
    with open_machines(recipe, size=size, behind=behind) as lab:
        NOTES.append(f"K3s: {machines.binary(lab.folder)[1]} is what the role installs")
        yield Operator(lab)


def find_differences(operator: Operator, before: State, *names: str) -> list[str]:
    """Return what is other than before on the machines, line by line."""
    return compare(before, {name: operator.lab.state(name) for name in names or before})


def compare(before: State, now: State) -> list[str]:
    """Return what is other than before on the machines of ``now``, line by line."""
    found = []
    for name, lines in now.items():
        found += [f"{name} has {line}" for line in lines if line not in before[name]]
        found += [f"{name} lacks {line}" for line in before[name] if line not in lines]
    return found


def describe_installed(lab: machines.BareLab) -> State:
    """Return what machines with a cluster on them are, without what its programs and pods write as they run."""
    found = {}
    for node in lab.nodes:
        lines = [line for line in lab.state(node.name) if not line.startswith((*_OWN, *_PER_POD))]
        kept = (line.rpartition(" ")[0] if line.startswith(_OF_ONE_CLUSTER) else line for line in lines)
        found[node.name] = sorted(set(kept))
    return found
