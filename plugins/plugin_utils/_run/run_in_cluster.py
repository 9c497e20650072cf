# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How a run in pods stands, asked of its cluster: for a reaper, when the controller that followed it is gone.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import typing as t

from ...module_utils._model.errors import MusterError
from .._kube import predicates
from .._kube.client import Client
from .._rent.reaper import RunView
from . import cluster_identity


def asked(client: Client, ref: t.Mapping[str, t.Any]) -> RunView | None:
    """Return how a run ended, asked of its cluster; None while it may go on, or where the cluster cannot tell.

    Only the object that was submitted counts: a run that was started again has another one. That it is not on some
    other cluster says nothing.
    """
    try:
        live = client.get(f"{ref['api_version']}/{ref['kind']}", str(ref["name"]), str(ref["namespace"]))
        if live is None or live["metadata"].get("uid") != ref.get("uid"):
            return None if cluster_identity.elsewhere(client, ref) else RunView("ended", "cancelled")
    except (MusterError, LookupError):
        return None
    phase = predicates.state(live).phase
    return {"done": RunView("ended", "succeeded"), "failed": RunView("ended", "failed")}.get(phase)
