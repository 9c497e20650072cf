# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Refuse an ansible-core or a Python that is too old, when this is imported: before what an old Python cannot read.

Without it an old Python ends ansible-playbook with a traceback of a SyntaxError.
"""

from __future__ import annotations

import re
import sys

from ansible.errors import AnsibleError
from ansible.release import __version__

CORE, PYTHON = (2, 20), (3, 12)


def find_problem(core: str, python: tuple[int, int]) -> str:
    """Return what is too old and what to do, empty where nothing is."""
    numbers = tuple(int(part) for part in re.findall(r"[0-9]+", core)[:2])
    if numbers >= CORE and python >= PYTHON:
        return ""
    this = f"ansible-core {core} with Python {'.'.join(str(part) for part in python)}"
    return (
        f"muster.training needs ansible-core 2.20 and Python 3.12 or newer; this is {this}. Install them into an"
        " environment of their own: python3.12 -m venv ~/ansible && ~/ansible/bin/pip install 'ansible-core>=2.20'"
    )


if _PROBLEM := find_problem(__version__, sys.version_info[:2]):
    raise AnsibleError(_PROBLEM)
