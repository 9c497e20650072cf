# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How a run in pods stands, asked of its cluster: when the controller that followed it is gone, or for who wonders.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import typing as t

from ....module_utils._model.errors import MusterError
from ..._kube.api.client import Client
from ..._kube.objects import status
from ..._provision.due_rules import RunView
from ..shared import cluster_identity


def describe_run(client: Client, run_id: str, ref: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Return ``phase`` (waiting, done, failed, gone, unknown) and ``detail``, one line for people."""
    try:
        what = f"{ref['kind']} {ref['namespace']}/{ref['name']}"
        cluster_identity.insist(client, {"run_id": run_id, "state": "running", "backend_ref": ref})
        live = client.get(f"{ref['api_version']}/{ref['kind']}", str(ref["name"]), str(ref["namespace"]))
    except (MusterError, LookupError) as error:
        return {"phase": "unknown", "detail": f"the cluster cannot report: {error}"}
    if live is None or (ref.get("uid") and live["metadata"].get("uid") != ref["uid"]):
        return {"phase": "gone", "detail": f"{what} is not there any more"}
    now = status.state(live)
    end = f"; its end is not recorded yet: train with muster_run_id={run_id} reads it" * (now.phase != "waiting")
    return {"phase": now.phase, "detail": f"{what}: {now.reason or now.phase}{end}"}


def read_run_end(client: Client, ref: t.Mapping[str, t.Any]) -> RunView | None:
    """Return how a run ended, asked of its cluster; None while it may go on, or where the cluster cannot report.

    Only the object that was submitted counts: a run that was started again has another one. That it is not on some
    other cluster says nothing.
    """
    try:
        live = client.get(f"{ref['api_version']}/{ref['kind']}", str(ref["name"]), str(ref["namespace"]))
        if live is None or live["metadata"].get("uid") != ref.get("uid"):
            return None if cluster_identity.elsewhere(client, ref) else RunView("ended", "cancelled")
    except (MusterError, LookupError):
        return None
    phase = status.state(live).phase
    return {"done": RunView("ended", "succeeded"), "failed": RunView("ended", "failed")}.get(phase)
