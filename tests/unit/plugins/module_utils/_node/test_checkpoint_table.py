# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Each layout can be asked for, and is documented where users look for it."""

from __future__ import annotations

import pathlib
import re

import pytest
import yaml

from ansible_collections.muster.training.plugins.module_utils._model import job
from ansible_collections.muster.training.plugins.module_utils._node.checkpoint_table import LAYOUTS
from ansible_collections.muster.training.plugins.modules import training_job

GUIDE = pathlib.Path(__file__).resolve().parents[5] / "docs" / "docsite" / "rst" / "guide_job.rst"


def test_every_layout_can_be_asked_for() -> None:
    assert ("auto", "files", *LAYOUTS) == job.CHECKPOINT_FORMATS


def test_every_layout_is_documented() -> None:
    keys = yaml.safe_load(training_job.DOCUMENTATION)["options"]["job"]["suboptions"]["checkpoints"]["suboptions"]
    assert tuple(keys["format"]["choices"]) == job.CHECKPOINT_FORMATS
    text = "".join(keys["format"]["description"])
    assert [name for name in job.CHECKPOINT_FORMATS if f"V({name})" not in text] == []
    table = GUIDE.read_text().partition("**Complete checkpoints.**")[2].partition("In all of them")[0]
    assert sorted(re.findall(r"^   \* - ``(\w+)``$", table, re.MULTILINE)) == sorted(["format", *LAYOUTS])


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_layout_says_by_what_it_is_known(name: str) -> None:
    assert LAYOUTS[name].known_by
