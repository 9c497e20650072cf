# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The verdicts on the network, ``fabric.json``: those of a cluster are read, a run keeps the one on its nodes."""

from __future__ import annotations

import pathlib
import typing as t

from ....module_utils._model.cluster_id import is_other_cluster
from ....module_utils._model.network_plan import NetworkPlan
from ....module_utils._model.run_record import SCHEMA
from ....module_utils._node import files

FABRIC: t.Final = "fabric.json"
# What the network test of jobs has proven.
NETWORK_TEST: t.Final = "pod_network.json"
# In an entry of fabric.json: the id of the cluster whose pods were tested; verdicts on plain hosts have none.
CLUSTER: t.Final = "cluster_id"


def read_verdicts(folder: pathlib.Path, cluster_id: str = "") -> list[t.Any]:
    """Return the entries of a folder's ``fabric.json``, readable or not; empty without a file.

    :param cluster_id: the cluster of now: what was proven on another one of its name is left out.
    """
    document = files.read_json(folder / FABRIC)
    entries = document.get("islands", []) if isinstance(document, dict) else (document or [])
    return [
        entry
        for entry in (entries if isinstance(entries, list) else [entries])
        if not (isinstance(entry, dict) and is_other_cluster(str(entry.get(CLUSTER) or ""), cluster_id))
    ]


def write_verdict(folder: pathlib.Path, plan: NetworkPlan) -> None:
    """Keep the verdict in the run's folder, where its report looks for it, once it is known which one it is."""
    if plan.verdict:
        files.write_json(folder / FABRIC, {"schema": SCHEMA, "islands": [dict(plan.verdict)]})
