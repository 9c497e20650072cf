# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A run on a cluster has one follower: a Lease under the run's name, held while it is submitted and followed.

Two of them would count its budgets, force-delete its pods and delete its machines at the same time. Whether a holder
is still running is judged by the renewals that are seen here, as in client-go's leader election: the API server may
have been away. Leases that no follower ends, because it was killed, are deleted by the next one of their namespace.
"""

from __future__ import annotations

import contextlib
import datetime
import threading
import time
import typing as t

from .....module_utils._model.errors import MusterError, RefusedError
from ...._kube.api.client import Client
from ...._kube.api.errors import KubeError
from ...._kube.api.kinds import Fields, JsonObject, KubeObject, ObjectMeta, parse_time
from ...._kube.jobs.spec import RUN_LABEL, KubePlan, set_owner
from ...shared.progress import Progress
from ...shared.state_dir import StateHome

DURATION_S = 60
RENEW_S = 15.0
_POLL_S = 0.5
_KIND = "coordination.k8s.io/v1/Lease"


class LeaderLease:
    """The Lease by which one controller holds a run. ``lost_to``: the controller that has taken it over, else empty."""

    def __init__(self, client: Client, plan: KubePlan, holder: str, progress: Progress) -> None:
        self._client, self._made, self._holder, self._progress = client, plan, holder, progress
        self._owners: list[Fields] = []
        self._over = threading.Event()
        self._renewer: threading.Thread | None = None
        self.lost_to = ""

    def take(self, take_over: bool) -> None:
        """Acquire the Lease: a free one, one that its holder no longer renews, or with ``take_over`` any.

        :raises RefusedError: naming the controller that follows it.
        """
        try:
            self._take(take_over)
        except KubeError as error:
            if error.is_terminating:
                fix = "Wait until it is gone and create it again, or name another one in placement.namespace"
                raise RefusedError(f"namespace {self._made.namespace} is being deleted", fix) from None
            if not error.is_forbidden:
                raise
            self._progress.say(
                "warning: no permission to use Leases: another controller could follow this run at the same time"
            )
            return
        self._renewer = threading.Thread(target=self._renew, daemon=True)
        self._renewer.start()

    def attach(self, live: KubeObject) -> None:
        """Let the Lease go with the run's object: the controller that holds it may be killed and never come back."""
        if self._renewer is None:
            return
        (owned,) = set_owner([{"metadata": {}}], live)
        self._owners = owned["metadata"]["ownerReferences"]
        with contextlib.suppress(MusterError):
            lease = self._read()
            if lease is not None and self._holder_of(lease) == self._holder:
                self._write(lease)

    def check(self) -> None:
        """Raise when another controller has taken the run over."""
        if self.lost_to:
            raise MusterError(f"run {self._made.run_id} was taken over by {self.lost_to}, which follows it now")

    def release(self) -> None:
        """Let the next one in at once."""
        self._over.set()
        if self._renewer is None:
            return
        self._renewer.join()
        with contextlib.suppress(MusterError):
            live = self._read()
            if live is not None and self._holder_of(live) == self._holder:
                self._client.delete(_KIND, self._made.name, self._made.namespace, uid=live["metadata"]["uid"])

    def _take(self, take_over: bool) -> None:
        seen: tuple[str, str] | None = None
        since = 0.0
        while True:
            live = self._read()
            holder = self._holder_of(live) if live else ""
            if take_over or holder in ("", self._holder):
                if self._write(live):
                    return
                continue
            spec = (live or {})["spec"]
            now, sign = time.monotonic(), (holder, str(spec.get("renewTime")))
            if seen is not None and sign != seen:
                raise _refuse_other(self._made.run_id, holder)
            if seen is None:
                seen, since = sign, now
                self._progress.say(f"run {self._made.run_id}: {holder} holds its Lease; checking for renewals")
            if now - since > float(spec.get("leaseDurationSeconds") or DURATION_S):
                if self._write(live):
                    return
                seen = None
            time.sleep(_POLL_S)

    def _read(self) -> KubeObject | None:
        return self._client.get(_KIND, self._made.name, self._made.namespace)

    @staticmethod
    def _holder_of(live: KubeObject) -> str:
        return str((live.get("spec") or {}).get("holderIdentity") or "")

    def _write(self, live: KubeObject | None) -> bool:
        """Write this holder into the Lease as it was read; return False when another one was faster."""
        # By the API server's clock: that of this controller may be hours off.
        at = datetime.datetime.fromtimestamp(self._client.transport.stats.server_time() or time.time(), datetime.UTC)
        now = at.isoformat(timespec="microseconds").replace("+00:00", "Z")
        spec: JsonObject = {"holderIdentity": self._holder, "leaseDurationSeconds": DURATION_S, "renewTime": now}
        try:
            if live is None:
                meta: ObjectMeta = {
                    "name": self._made.name,
                    "namespace": self._made.namespace,
                    "labels": dict(self._made.labels),
                    "ownerReferences": self._owners,
                }
                api_version, _unused, kind = _KIND.rpartition("/")
                spec["acquireTime"] = now
                self._client.create({"apiVersion": api_version, "kind": kind, "metadata": meta, "spec": spec})
                return True
            if self._holder_of(live) != self._holder:
                spec["acquireTime"] = now
            # An object that ran it before would take the Lease with it.
            meta_change = {
                "resourceVersion": live["metadata"]["resourceVersion"],
                "ownerReferences": self._owners or None,
            }
            body = {"metadata": meta_change, "spec": spec}
            self._client.patch(_KIND, self._made.name, body, self._made.namespace)
        except KubeError as error:
            # 409: the Lease was changed or created meanwhile; 404: it was deleted meanwhile, or there is no namespace.
            if live is None and error.status == 404:
                fix = "Create it, or name another one in placement.namespace"
                raise RefusedError(f"namespace {self._made.namespace} does not exist", fix) from None
            if error.status in (404, 409):
                return False
            raise
        return True

    def _renew(self) -> None:
        while not self._over.wait(RENEW_S):
            try:
                live = self._read()
                holder = self._holder_of(live) if live else ""
                if holder not in ("", self._holder):
                    self.lost_to = holder
                    return
                self._write(live)
            except MusterError:
                # An outage of the API server: other controllers can neither read a renewal nor write the Lease.
                continue


def _refuse_other(run_id: str, holder: str) -> RefusedError:
    fix = "Follow or cancel it there, or take it over with muster_take_over: true"
    return RefusedError(f"run {run_id} is followed by another controller: {holder}", fix)


def _name_holder(home: StateHome, *, create: bool) -> str:
    who = home.owner(create=create)
    return f"{who['controller']} ({who['owner'][:12]})"


def find_other(client: Client, name: str, namespace: str, home: StateHome) -> tuple[str, bool]:
    """Return the other controller that a run's Lease names, and whether it renews it; empty where there is none.

    Nothing is written. A Lease that may not be read names no other.
    """
    try:
        live = client.get(_KIND, name, namespace)
    except KubeError:
        return "", False
    holder = str(((live or {}).get("spec") or {}).get("holderIdentity") or "")
    if live is None or holder in ("", _name_holder(home, create=False)):
        return "", False
    return holder, not is_expired(live, client.transport.stats.server_time())


def require_free(client: Client, plan: KubePlan, home: StateHome, take_over: bool) -> None:
    """Refuse a run that another controller follows, as :meth:`LeaderLease.take` will; nothing is written.

    :raises RefusedError: naming that controller.
    """
    holder, renews = find_other(client, plan.name, plan.namespace, home)
    if holder and renews and not take_over:
        raise _refuse_other(plan.run_id, holder)


def is_expired(lease: KubeObject, now: float | None) -> bool:
    """Return whether a Lease was not renewed for its duration: its holder was killed, or cannot reach the cluster.

    :param now: the API server's time, None where it is not known; holders write their renewals by it.
    """
    spec = lease.get("spec") or {}
    renewed = parse_time(spec.get("renewTime"))
    return (
        now is not None
        and renewed is not None
        and now - renewed > float(spec.get("leaseDurationSeconds") or DURATION_S)
    )


def delete_expired(client: Client, namespace: str) -> None:
    """Delete the expired Leases of runs. Should a holder be running, its next renewal creates its Lease again."""
    with contextlib.suppress(MusterError):
        leases = client.list(_KIND, namespace, labels=RUN_LABEL, patient=False).items
        now = client.transport.stats.server_time()
        for lease in leases:
            if is_expired(lease, now):
                client.delete(_KIND, lease["metadata"]["name"], namespace, uid=lease["metadata"]["uid"])


@contextlib.contextmanager
def hold_lease(
    client: Client, plan: KubePlan, home: StateHome, progress: Progress, take_over: bool
) -> t.Iterator[LeaderLease]:
    """Hold a run for as long as the block lasts.

    :raises RefusedError: when another controller follows it.
    """
    claim = LeaderLease(client, plan, _name_holder(home, create=True), progress)
    claim.take(take_over)
    try:
        yield claim
    finally:
        claim.release()
        delete_expired(client, plan.namespace)
