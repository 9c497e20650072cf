# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lists in messages."""

from __future__ import annotations

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.wording import name_some


@pytest.mark.parametrize(
    ("names", "separator", "text"),
    [
        ([], ", ", ""),
        (["a"], ", ", "a"),
        (["a", "b"], ", ", "a, b"),
        (["a", "b", "c"], ", ", "a, b and 1 more"),
        (["a", "b", "c"], "; ", "a; b; and 1 more"),
        (["n"] * 1234, ", ", "n, n and 1,232 more"),
    ],
)
def test_the_first_are_named_and_the_rest_is_counted(names: list[str], separator: str, text: str) -> None:
    assert name_some(names, 2, separator) == text
