# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A run stays on the cluster on which it was started: a kubeconfig that points elsewhere by now is refused.

Looked for on another cluster, a run that lives would seem gone, and would be started there a second time.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import typing as t
from collections.abc import Mapping

from ...module_utils._model.errors import RefusedError
from .._kube.client import Client
from .._kube.errors import KubeError


def read(client: Client) -> str:
    """Return the cluster's id, empty where this user may not read it."""
    try:
        return client.cluster_id()
    except KubeError as error:
        if error.status != 403:
            raise
        return ""


def elsewhere(client: Client, reference: Mapping[str, t.Any]) -> str:
    """Return the id of this cluster when it is another one than that of ``reference`` (a run's ``backend_ref``).

    Empty for the same cluster; without an id of both nothing can be told.
    """
    known = str(reference.get("cluster_id") or "")
    seen = read(client) if known else ""
    return seen if seen != known else ""


def insist(client: Client, record: Mapping[str, t.Any] | None, *, ended: bool = False) -> None:
    """Refuse another cluster than the one on which the run of this record lives.

    A run that has ended may go on elsewhere; with ``ended`` it is asked about where it was.
    """
    if record is None or (record.get("state") == "ended" and not ended):
        return
    reference = record.get("backend_ref") or {}
    known, seen = reference.get("cluster_id"), elsewhere(client, reference)
    if seen:
        run, context = record.get("run_id"), reference.get("context")
        fix = "Give the kubeconfig of that cluster" + (f" (its context was {context})" if context else "")
        raise RefusedError(f"run {run} lives on another cluster ({known}) than {client.server} ({seen})", fix)
