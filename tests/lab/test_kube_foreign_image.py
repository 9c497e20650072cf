# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An image for another architecture than the nodes have: one line says so, in the words of containerd and the kubelet."""

from __future__ import annotations

import pathlib
import typing as t

import pytest

from ansible_collections.muster.training.tests.lab.kube_plays import Controller, command
from ansible_collections.muster.training.tests.lab.kube_registry import ARM_PROGRAM, Registry, registry
from ansible_collections.muster.training.tests.support.kube_lab import NOTES, KubeLab, Team

# How an image is foreign: what its index says, what its manifest says, or only what is in it. (architecture, listed)
FOREIGN = {"index": ("arm64", True), "manifest": ("arm64", False), "content": ("amd64", False)}


@pytest.fixture(scope="module")
def images(kube_lab: KubeLab) -> t.Iterator[Registry]:
    """A registry on every node."""
    with registry(kube_lab) as made:
        yield made


@pytest.mark.parametrize("how", FOREIGN)
def test_a_foreign_image_is_refused_in_one_line(
    how: str, images: Registry, kube_lab: KubeLab, team: Team, tmp_path: pathlib.Path
) -> None:
    architecture, listed = FOREIGN[how]
    files = {f"/usr/{place}/python3": ARM_PROGRAM for place in ("bin", "local/bin")}
    name = images.push(how, files, architecture, listed)
    code, output = Controller(kube_lab, team, tmp_path).play("train", command("true", image=name))
    assert code != 0 and "Traceback" not in output, output
    said = f"job.image: {name} is not made for the architecture of its node: "
    assert said in output, output
    NOTES.append(f"foreign image by its {how}: {output.partition(said)[2].splitlines()[0]}")
    assert "Build it for that architecture" in output
    assert kube_lab.items(f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/{team.namespace}/jobsets") == []
