# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Findings of a log, and how their weights decide which of them is named as the cause."""

from __future__ import annotations

import dataclasses
import typing as t

from ....module_utils._model.verdict import Cause
from ....module_utils._secrets.scrubber import mask_likely
from ..verdict.cause_info import Weight
from ..verdict.cause_table import SYMPTOMS
from .live_causes import find_cause_info


@dataclasses.dataclass(frozen=True, slots=True)
class Finding:
    """A cause with its evidence: the first line and its text, how often it occurred, and the last line.

    ``transient`` findings are retries: they do not count when the log shows that the job continued. ``stopped``: this
    message ended the job, whatever the usual weight of the code is. ``rank``: whose line it is; ``fix``: what to do
    about this one, where more is known than of its code.
    """

    code: str
    line: int
    text: str
    host: str = ""
    count: int = 1
    last_line: int = 0
    transient: bool = False
    stopped: bool = False
    rank: int | None = None
    fix: str = ""

    @property
    def weight(self) -> Weight:
        """The weight of this finding."""
        return "fatal" if self.stopped else find_cause_info(self.code).weight


def split_by_weight(findings: t.Iterable[Finding]) -> tuple[list[Finding], list[Finding]]:
    """Split findings into the causes, the deciding finding first, and other observations.

    A fatal finding decides, preceded by the advice that explains it; one that only shows the end decides where nothing
    says why. Without a fatal finding the consequences decide, and without those the advice.
    """
    ordered = sorted(findings, key=lambda finding: finding.line)
    by_weight: dict[Weight, list[Finding]] = {"fatal": [], "secondary": [], "advice": []}
    for finding in ordered:
        by_weight[finding.weight].append(finding)
    reported = [finding for finding in by_weight["fatal"] if finding.code not in SYMPTOMS]
    ended = [finding for finding in by_weight["fatal"] if finding.code == "rank_ended"]
    leading = reported or ended or by_weight["fatal"] or by_weight["secondary"] or by_weight["advice"]
    codes = {finding.code for finding in leading}
    reasons = [finding for finding in by_weight["advice"] if codes.intersection(find_cause_info(finding.code).explains)]
    explained = {code for finding in reasons for code in find_cause_info(finding.code).explains}
    if leading is by_weight["advice"]:
        chosen = [finding for finding in leading if finding.code not in explained]
    else:
        chosen = [*reasons, *leading]
    return chosen, [finding for finding in ordered if finding not in chosen]


def build_cause(finding: Finding, file: str) -> Cause:
    """Return the cause of a finding: its evidence is ``file:line: text`` and how often it occurred."""
    where = f"{file}:{finding.line}" if finding.line else file
    times = f" ({finding.count} times)" if finding.count > 1 else ""
    fix = finding.fix or find_cause_info(finding.code).fix
    # A log may be of another user, with credentials that this process never held.
    return Cause(finding.code, f"{where}: {mask_likely(finding.text)}{times}", fix, finding.host or None)
