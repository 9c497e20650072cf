# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Makes a virtual environment with packages on one host, where they are missing."""

from __future__ import annotations

import typing as t

from .node_client import NodeClient


def ensure_environment(
    remote: NodeClient, options: t.Mapping[str, t.Any], check: bool, say: t.Callable[[str], None]
) -> dict[str, object]:
    """Install the packages and return ``{changed, python}``; with ``wait: false`` they are being installed then."""
    answer = remote.call(
        "environment",
        python=options["base_python"],
        requirements=options["requirements"],
        folder=options["path"],
        check=check,
        background=not options["wait"] and not check,
    )
    if answer["made"] and not options["wait"]:
        # Without the options of pip: the index may be named with a password.
        packages = ", ".join(line for line in options["requirements"] if not line.startswith("-"))
        say(f"{remote.name}: installing {packages} into {answer['folder']}; PyTorch takes minutes")
    return {"changed": bool(answer["made"]) or check, "python": f"{answer['folder']}/bin/python"}
