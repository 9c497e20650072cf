# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Renders junit.xml, the checks of a run as one test suite for CI.

Shape: the testsuite/testcase/failure/skipped elements that Jenkins, GitLab and ansible-test read. A check
without evidence is a failure of type ``unproven``.
"""

from __future__ import annotations

from xml.etree import ElementTree as tree

from ..data.load import RunFolder
from ..data.run_model import build_run_model
from ..rules.checks import ReportCheck, build_checks


def render_junit(run: RunFolder) -> str:
    """Return the XML document as text (UTF-8 when written)."""
    model = build_run_model(run)
    checks = build_checks(model)
    failures = sum(check.status in ("failed", "unproven") for check in checks)
    skipped = sum(check.status == "skipped" for check in checks)
    suite = tree.Element(
        "testsuite",
        name=f"muster.training {model.run_id}",
        tests=str(len(checks)),
        failures=str(failures),
        errors="0",
        skipped=str(skipped),
        time=f"{model.clock.duration or 0.0:.3f}",
    )
    for check in checks:
        _testcase(suite, model.run_id, check)
    tree.indent(suite)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + tree.tostring(suite, encoding="unicode") + "\n"


def _testcase(suite: tree.Element, run_id: str, check: ReportCheck) -> None:
    testcase = tree.SubElement(suite, "testcase", classname=f"muster.training.{run_id}", name=check.name)
    if check.status in ("failed", "unproven"):
        failure = tree.SubElement(testcase, "failure", type=check.status, message=check.message)
        failure.text = f"{check.title}: {check.message}"
    elif check.status == "skipped":
        tree.SubElement(testcase, "skipped", message=check.message)
    else:
        tree.SubElement(testcase, "system-out").text = check.message
