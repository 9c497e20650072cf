# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Gather a node's facts with one request, and check whether it can take part in a job.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import time
import typing as t

from ...module_utils._model import checks
from .._hosts.node_client import NodeClient


def gather_node_info(remote: NodeClient, python: str, packages: t.Sequence[str], facts: bool) -> dict[str, object]:
    """Return ``{changed, node, checks}``: the node's facts, and whether it can take part in a job."""
    began = time.time()
    info = remote.call("info", python=python, packages=list(packages), facts=facts)
    skew = info["time"] - (began + time.time()) / 2
    node_checks = checks.check_node(remote.name, info, skew)
    return {
        "changed": False,
        "node": {**info, "clock_skew_s": round(skew, 3)},
        "checks": checks.build_result(node_checks),
    }
