# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Secrets of a run that External Secrets resolves in the cluster: asked for with the run, and gone with it."""

from __future__ import annotations

from .....module_utils._model.errors import MusterError, RefusedError
from .....module_utils._model.job import Job
from ...._kube.api.client import Client
from ...._kube.api.kinds import KubeObject
from ...._kube.jobs.spec import KubePlan
from ...._kube.objects import external_secrets
from ...shared.progress import Progress


def require(client: Client, job: Job, namespace: str) -> None:
    """Refuse secrets that the cluster cannot resolve.

    :raises RefusedError: naming what is missing, and the way without it.
    """
    refs = [ref for ref in job.secret_refs if ref.source == "external_secrets"]
    if refs and not external_secrets.is_served(client):
        raise RefusedError(
            f"job.secret_refs.{refs[0].name}: the cluster has no External Secrets ({external_secrets.API_VERSION})",
            "Install the operator, or have the controller read the secret (from: openbao, vault, …)",
        )
    for store in dict.fromkeys(str(ref.store) for ref in refs):
        first = next(ref.name for ref in refs if ref.store == store)
        external_secrets.require_store(client, namespace, store, f"job.secret_refs.{first}.store")


def build(plan: KubePlan) -> list[KubeObject]:
    """Return what the operator is asked for, or nothing."""
    values = [
        external_secrets.RemoteValue(ref.name, str(ref.path), ref.key, str(ref.store))
        for ref in plan.job.secret_refs
        if ref.source == "external_secrets"
    ]
    if not values or plan.external_secret is None:
        return []
    return [external_secrets.build(plan.metadata(plan.external_secret), values)]


def wait_ready(client: Client, plan: KubePlan) -> None:
    """Wait until the operator has made the run's Secret. Raises RefusedError with its reason."""
    for item in build(plan):
        external_secrets.wait_ready(client, item)


def delete(client: Client, plan: KubePlan, progress: Progress) -> None:
    """Delete what the operator was asked for; the cluster deletes the Secret with it."""
    if plan.external_secret is None:
        return
    try:
        client.delete(external_secrets.KIND, plan.external_secret, plan.namespace)
    except MusterError as error:
        name = plan.external_secret
        progress.say(f"warning: ExternalSecret {name} was not deleted; it is deleted with its run: {error}")
