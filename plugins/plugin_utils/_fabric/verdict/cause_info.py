# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is known of one cause: its code, its weight, what it means and what to do.

Weights: ``fatal`` stopped the job. ``secondary`` is what other ranks report after one of them stopped; it decides only
without a fatal cause. ``advice`` costs speed, or may; it is listed after a fatal cause unless it explains it.
"""

from __future__ import annotations

import dataclasses
import typing as t

Weight = t.Literal["fatal", "secondary", "advice"]
Backend = t.Literal["hosts", "kubernetes"]


@dataclasses.dataclass(frozen=True, slots=True)
class CauseInfo:
    """One cause. ``explains`` are the codes that this cause explains when both are found.

    ``on_hosts`` and ``in_pods`` are the fix where the backend is known, if ``fix`` does not hold for both; ``ended`` is
    that of a run that has ended, where the others are for one that may continue.
    """

    code: str
    weight: Weight
    title: str
    fix: str
    explains: tuple[str, ...] = ()
    on_hosts: str = ""
    in_pods: str = ""
    ended: str = ""

    def fix_on(self, backend: Backend | None, *, over: bool = False) -> str:
        """Return what to do on a backend; None: it is not known. ``over``: the run has ended."""
        if over and self.ended:
            return self.ended
        return (self.on_hosts if backend == "hosts" else self.in_pods if backend else "") or self.fix
