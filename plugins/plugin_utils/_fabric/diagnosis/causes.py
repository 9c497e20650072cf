# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Findings of a log, and how their weights decide which of them is named as the cause.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import dataclasses
import typing as t

from ....module_utils._model.verdict import Cause
from ..verdict.cause_table import CAUSES, Weight


@dataclasses.dataclass(frozen=True, slots=True)
class Finding:
    """A cause with its evidence: the first line and its text, how often, and the last line where it was seen.

    ``transient`` findings are retries: they count only when nothing shows that the job got further. ``stopped``: this
    very message ended the job, whatever the usual weight of the code is.
    """

    code: str
    line: int
    text: str
    host: str = ""
    count: int = 1
    last_line: int = 0
    transient: bool = False
    stopped: bool = False

    @property
    def weight(self) -> Weight:
        """The weight of this finding."""
        return "fatal" if self.stopped else CAUSES[self.code].weight


def split_by_weight(findings: t.Iterable[Finding]) -> tuple[list[Finding], list[Finding]]:
    """Split findings into the causes, the deciding one first, and what was seen beside them.

    A fatal finding decides; what explains it stands before it; advice and consequences step back. Without a fatal one
    the consequences are all there is, and without those the advice.
    """
    ordered = sorted(findings, key=lambda finding: finding.line)
    by_weight: dict[Weight, list[Finding]] = {"fatal": [], "secondary": [], "advice": []}
    for finding in ordered:
        by_weight[finding.weight].append(finding)
    leading = by_weight["fatal"] or by_weight["secondary"] or by_weight["advice"]
    codes = {finding.code for finding in leading}
    reasons = [one for one in by_weight["advice"] if codes.intersection(CAUSES[one.code].explains)]
    explained = {code for one in reasons for code in CAUSES[one.code].explains}
    if leading is by_weight["advice"]:
        chosen = [one for one in leading if one.code not in explained]
    else:
        chosen = [*reasons, *leading]
    return chosen, [one for one in ordered if one not in chosen]


def build_cause(finding: Finding, file: str) -> Cause:
    """Return the contract's value: evidence is ``file:line: text`` and how often it was seen."""
    where = f"{file}:{finding.line}" if finding.line else file
    times = f" ({finding.count} times)" if finding.count > 1 else ""
    return Cause(finding.code, f"{where}: {finding.text}{times}", CAUSES[finding.code].fix, finding.host or None)
