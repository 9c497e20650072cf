# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The version in the User-Agent."""

from __future__ import annotations

import pathlib
import re

from ansible_collections.muster.training.plugins.module_utils._http.version import VERSION


def test_the_version_that_servers_see_is_the_collection_s() -> None:
    galaxy = pathlib.Path(__file__).parents[5] / "galaxy.yml"
    found = re.search(r"^version: *[\"']?([^\"'\s]+)", galaxy.read_text(encoding="utf-8"), re.M)
    assert found is not None and found.group(1) == VERSION
