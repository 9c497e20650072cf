# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A controller that rents two machines, for tests of run leases."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator

import pytest

from ansible_collections.muster.training.tests.fakes.lambda_cloud import FakeLambda
from ansible_collections.muster.training.tests.fakes.virtual import VirtualClock
from ansible_collections.muster.training.tests.support.rented_runs import World


@pytest.fixture
def world(tmp_path: pathlib.Path) -> Iterator[World]:
    clock = VirtualClock()
    api = FakeLambda(clock, boot_s=10.0)
    with api.loopback() as url:
        yield World(tmp_path, url, api, clock)
    assert api.violations == []
