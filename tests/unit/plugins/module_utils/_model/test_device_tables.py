# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Architectures by PCI device ids, as NVIDIA's list of supported GPUs has them."""

from __future__ import annotations

import pytest

from ansible_collections.muster.training.plugins.module_utils._model import device_tables


@pytest.mark.parametrize(
    ("device", "name"),
    [
        ("102d", "older"),
        ("13c2", "maxwell"),
        ("17f0", "maxwell"),
        ("15f8", "pascal"),
        ("1b38", "pascal"),
        ("1db1", "volta"),
        ("1eb8", "turing"),
        ("2182", "turing"),
        ("20b2", "ampere"),
        ("2204", "ampere"),
        ("25b6", "ampere"),
        ("2330", "hopper"),
        ("2342", "hopper"),
        ("26b9", "ada"),
        ("27b8", "ada"),
        ("2901", "blackwell"),
        ("2e12", "blackwell"),
        ("31c2", "blackwell"),
        (None, None),
    ],
)
def test_architecture_of_a_device(device: str | None, name: str | None) -> None:
    assert device_tables.architecture_of(device) == name


def test_every_signed_repository_has_its_key() -> None:
    assert all(key.endswith(".pub") for _folder, key, _fingerprint in device_tables.CUDA_REPOSITORIES.values())
    known = [fingerprint for _folder, _key, fingerprint in device_tables.CUDA_REPOSITORIES.values() if fingerprint]
    assert all(len(fingerprint) == 40 and fingerprint.isupper() for fingerprint in known) and len(known) >= 7
