# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The runner of ``node_info``: one request to a node, all facts and basic checks in one answer.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import time
import typing as t

from ...module_utils._model import checks
from .._hosts.node_client import NodeClient

Dict = dict[str, t.Any]


def gather(remote: NodeClient, python: str, packages: t.Sequence[str], facts: bool) -> Dict:
    """Return ``{changed, node, checks}``: what the node is, and whether it can take part in a job at all."""
    began = time.time()
    info = remote.call("info", python=python, packages=list(packages), facts=facts)
    skew = info["time"] - (began + time.time()) / 2
    found = checks.check_node(remote.name, info, skew)
    return {"changed": False, "node": {**info, "clock_skew_s": round(skew, 3)}, "checks": checks.build_result(found)}
