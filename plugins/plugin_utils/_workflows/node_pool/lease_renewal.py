# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Renew the dead-man timers of rented machines while a run uses them (role ``lease``)."""

from __future__ import annotations

import threading
import time
import typing as t

from ....module_utils._model.errors import MusterError, NodeError
from ..._hosts.node_client import NodeClient, on_each_node

SCRIPT = "/usr/local/sbin/muster-lease"
LEASE_S = 14_400
# A machine without the script has no lease: nothing to renew.
_COMMAND = "s={script}; if [ -x $s ]; then $s renew {lease} {below} 2>/dev/null || sudo -n $s renew {lease} {below}; fi"


def renew_leases(remotes: t.Sequence[NodeClient], lease_s: int = LEASE_S) -> dict[str, MusterError]:
    """Renew the lease of every machine that has one; return the error of each that failed, by name."""
    command = _COMMAND.format(script=SCRIPT, lease=lease_s, below=lease_s * 9 // 10)

    def work(remote: NodeClient) -> None:
        code, _out, err = remote.run(command, b"")
        if code:
            reason = (err.strip().splitlines() or ["no reason given"])[-1][:160]
            raise NodeError(remote.name, f"its lease could not be renewed ({reason})")

    return on_each_node(remotes, work)[1]


class LeaseRenewal:
    """Renews periodically beside a loop that must not wait for machines. ``report`` gets each problem once."""

    def __init__(
        self,
        remotes: t.Sequence[NodeClient],
        report: t.Callable[[str], None],
        lease_s: int = LEASE_S,
        now: t.Callable[[], float] = time.monotonic,
    ) -> None:
        self._remotes = remotes
        self._report = report
        self._lease_s = lease_s
        self._now = now
        self._next: float | None = None
        self._reported: set[str] = set()
        self._work: threading.Thread | None = None

    def tick(self) -> None:
        """Renew when a tenth of the lease has passed since the last time, the first time at once."""
        busy = self._work is not None and self._work.is_alive()
        if not self._remotes or busy or (self._next is not None and self._now() < self._next):
            return
        self._next = self._now() + max(30.0, min(600.0, self._lease_s / 10))
        self._work = threading.Thread(target=self._renew, daemon=True, name="muster-lease")
        self._work.start()

    def wait(self) -> None:
        """Wait for a renewal that is in progress."""
        if self._work is not None:
            self._work.join()

    def _renew(self) -> None:
        for name, error in renew_leases(self._remotes, self._lease_s).items():
            if name not in self._reported:
                self._reported.add(name)
                self._report(f"warning: {error}")


def select_rented(remotes: t.Sequence[NodeClient], hostvars: t.Mapping[str, t.Any]) -> list[NodeClient]:
    """Return the remotes of rented machines: a lease must not switch off any other machine."""
    return [item for item in remotes if ((hostvars[item.name].get("muster_node")) or {}).get("ownership") == "rented"]
