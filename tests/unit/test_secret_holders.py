# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every file that has a secret in its hands is named in the canary's list, with a test that exists."""

from __future__ import annotations

import pathlib
import re

import pytest

from ansible_collections.muster.training.tests.support import canary
from ansible_collections.muster.training.tools.tree import project_files

ROOT = pathlib.Path(__file__).resolve().parents[2]
# What hands out the text of a secret, or makes or reads one.
TOUCHES = re.compile(
    r"\.reveal\(\)|\bremember\(|\bregister_secret\(|\bmake_credentials\(|\bmake_keys\b|\bread_credentials\("
)


def holders() -> set[str]:
    """Return the files of the collection that touch the text of a secret."""
    names = [name for name in project_files(ROOT) if name.startswith("plugins/") and name.endswith(".py")]
    return {name.removeprefix("plugins/") for name in names if TOUCHES.search((ROOT / name).read_text())}


def test_the_list_has_every_holder_and_no_other() -> None:
    assert sorted(canary.HOLDERS) == sorted(holders())


@pytest.mark.parametrize("test", sorted(set(canary.HOLDERS.values())))
def test_what_covers_a_holder_is_there(test: str) -> None:
    file, _colons, name = test.partition("::")
    text = (ROOT / file).read_text()
    assert not name or f"def {name}(" in text
