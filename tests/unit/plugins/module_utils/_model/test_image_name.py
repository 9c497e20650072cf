# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Names of images, by what containerd makes of them."""

from __future__ import annotations

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.image_name import full_name


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        ("python", "docker.io/library/python:latest"),
        ("python:3.13", "docker.io/library/python:3.13"),
        ("docker.io/python", "docker.io/library/python:latest"),
        ("pytorch/pytorch:2.9", "docker.io/pytorch/pytorch:2.9"),
        ("localhost/muster/train", "localhost/muster/train:latest"),
        ("registry:5000/train", "registry:5000/train:latest"),
        ("nvcr.io/nvidia/pytorch:26.08-py3", "nvcr.io/nvidia/pytorch:26.08-py3"),
        ("nvcr.io/nvidia/pytorch@sha256:0a", "nvcr.io/nvidia/pytorch@sha256:0a"),
    ],
)
def test_a_name_gets_its_registry_and_its_tag(written: str, kept: str) -> None:
    assert full_name(written) == kept and full_name(kept) == kept
