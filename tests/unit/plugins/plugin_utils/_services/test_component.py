# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tokens of services: long, of characters that need no quotes anywhere, and never the same."""

from __future__ import annotations

import re

from ansible_collections.muster.training.plugins.plugin_utils._services.component import make_token


def test_tokens_are_long_plain_and_new() -> None:
    made = {make_token() for _number in range(50)}
    assert len(made) == 50 and all(re.fullmatch(r"[A-Za-z0-9_-]{40}", item) for item in made)
