# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The pages of the runs in tests/fixtures/report, rendered once."""

from __future__ import annotations

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._report.data.load import load_run
from ansible_collections.muster.training.plugins.plugin_utils._report.pages.page import render_html
from ansible_collections.muster.training.tests.unit.plugins.plugin_utils._report.runs import FIXTURES, NAMES


@pytest.fixture(scope="session")
def pages() -> dict[str, str]:
    return {name: render_html(load_run(FIXTURES / name)) for name in NAMES}
