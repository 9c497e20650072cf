# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A reader asks whether a model can be served."""

from __future__ import annotations

import pathlib

import pytest

from ansible_collections.muster.training.tests.support.shell_blocks import Reader, own_environment
from ansible_collections.muster.training.tests.unit.plugins.plugin_utils._workflows.serve_check.model_folders import (
    write_model,
)

BLOCKS = ("guide_serving-0",)


@pytest.mark.parametrize("name", BLOCKS)
def test_the_model_of_the_reader_can_be_served(tmp_path: pathlib.Path, name: str) -> None:
    write_model(tmp_path / "model")
    reader = Reader(tmp_path, own_environment(tmp_path))
    (printed,) = reader.run(name)
    assert "chat_template: ok" in printed
