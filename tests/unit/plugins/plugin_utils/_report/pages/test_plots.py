# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The drawing of pictures with matplotlib."""

from __future__ import annotations

import pathlib
import re

from ansible_collections.muster.training.plugins.plugin_utils._report.pages import plots


def test_matplotlib_is_imported_by_the_plots_alone() -> None:
    package = pathlib.Path(plots.__file__).parent
    eager = re.compile(r"^(?:import|from) matplotlib", re.MULTILINE)
    lazy = re.compile(r"^    +(?:import|from) matplotlib", re.MULTILINE)
    for path in package.glob("*.py"):
        source = re.sub(r"if t\.TYPE_CHECKING:\n(?:    .*\n)+", "", path.read_text())
        assert not eager.search(source), path.name
        assert path.name == "plots.py" or not lazy.search(source), path.name
