# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The shell blocks of the README, the guides and the roles' pages, each with a name: ``guide_hosts-0``."""

from __future__ import annotations

import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs" / "docsite" / "rst").glob("*.rst")),
    *sorted(ROOT.glob("roles/*/README.md")),
]


def read_blocks() -> dict[str, str]:
    """Return the text of each block by its name, which is its page's and its number on it."""
    found = {}
    for page in PAGES:
        text = page.read_text()
        blocks = re.findall(r"^```(?:bash|shell|console)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
        blocks += re.findall(r"^\.\. code-block:: (?:bash|shell|console)\n\n((?:    .*\n|\n)+)", text, re.MULTILINE)
        name = page.stem if page.parent.parent.name != "roles" else f"{page.parent.name}-{page.stem}"
        found |= {f"{name}-{number}": block for number, block in enumerate(blocks)}
    return found
