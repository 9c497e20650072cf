# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the tests of this folder share."""

from __future__ import annotations

import pathlib

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared.state_dir import StateHome


@pytest.fixture
def home(tmp_path: pathlib.Path) -> StateHome:
    return StateHome({"path": str(tmp_path)}, "lab")
