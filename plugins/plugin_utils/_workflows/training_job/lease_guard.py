# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a follower asks about the machines of its run, and the answer for machines that are owned."""

from __future__ import annotations

import typing as t

from ..shared.request import Result


class LeaseGuard(t.Protocol):
    """Watches over the leases of a run's machines."""

    def stop_reason(self) -> str:
        """Return why the run has to end now, empty while it may continue."""

    def delete_due(self, result: Result, outcome: str) -> Result:
        """Delete the machines that are due after the run's end; return the result with what came of that."""

    def price_of(self, node: t.Mapping[str, t.Any], listed: float | None) -> float | None:
        """Return the dollars per hour of a host that an inventory lists at ``listed``; ``node`` is its record."""


class NoLeases:
    """The guard of owned machines: the run may always continue, and nothing is deleted."""

    def stop_reason(self) -> str:
        """Return that nothing ends the run."""
        return ""

    def delete_due(self, result: Result, outcome: str) -> Result:
        """Return the result as it is."""
        del outcome
        return result

    def price_of(self, node: t.Mapping[str, t.Any], listed: float | None) -> float | None:
        """Return the listed price."""
        del node
        return listed
