# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Why a test may be left out on a machine: one list. A test that is skipped for another reason has failed.

``DOORS`` are the files whose one function tells what the machine lacks, in words of its own; where the lab is required
(MUSTER_REQUIRE_LAB) they fail instead. All other reasons are literals, and match one of ``ALLOWED``.
"""

from __future__ import annotations

import collections
import re
import typing as t

import pytest

_NO_PYTHON: t.Final = "an interpreter with packages that are large, or of another environment; make test makes it"
_ROOT: t.Final = "what root may do, or may not"
_KERNEL: t.Final = "what this kernel, or this container, can do"
_BUILT: t.Final = "a program that is built by hand; where it is missing, its cases are counted as not run"
_TOOL: t.Final = "a program of the machine's distribution"
ALLOWED: t.Final[dict[str, str]] = {
    r"MUSTER_(TORCH|SERVICES|LAUNCHERS)_PYTHON": _NO_PYTHON,
    r"MUSTER_(MLFLOW|WANDB)_PYTHON": "packages that make test does not install: name an interpreter that has them",
    r"could not import '(hvac|botocore)'": _NO_PYTHON,
    r"this Python has what is to be missing": _NO_PYTHON,
    r"no Python below 3\.10 is at hand": _NO_PYTHON,
    r"there is no (Vault|MinIO) among the lab's programs": _BUILT,
    r"no registry in MUSTER_LAB_BIN or the lab's cache": _BUILT,
    r"a program of Prometheus is not in MUSTER_LAB_BIN or the lab's cache": _BUILT,
    r"MUSTER_LAB_BIN has no k8s-rdma-shared-dp": _BUILT,
    r"no folder of custom resource definitions at": _BUILT,
    r"root may (write every|write any|read every)|only root may mount|mounts in namespaces need root": _ROOT,
    r"a small disk needs root|needs root, ip and nft": _ROOT,
    r"network namespaces cannot be made here|a file system cannot be mounted here": _KERNEL,
    r"this kernel does not weigh sessions|needs /proc and a file system with holes": _KERNEL,
    r"systemd runs here|systemd limits the unit as a whole|(needs systemd-(analyze|escape)|systemd-analyze is not installed)": _KERNEL,
    r"(git|ssh-keygen|OpenSSH|sshd|PostgreSQL) is not installed|the local connection is only taken where sshd": _TOOL,
    r"this machine has GPUs|this machine cannot run the lab": "the machine itself",
    r"the cluster has no torch|no torch for Python 3\.13 was found": "a cluster that was made without the large packages",
}
DOORS: t.Final = (
    "tests/support/kube_lab.py",
    "tests/support/kube_api.py",
    "tests/e2e/conftest.py",
    "tests/lab/test_kube_parts.py",
    "tests/unit/plugins/plugin_utils/_workflows/test_local_nodes.py",
    "tests/unit/plugins/plugin_utils/_workflows/fabric_verify/test_run.py",
)


def explain(reason: str, place: str = "") -> str:
    """Return why a test may be skipped for a reason, empty where it may not. ``place``: the file that skipped it."""
    if any(place.endswith(door) for door in DOORS):
        return "what the lab, a server or a program of it needs"
    return next((why for pattern, why in ALLOWED.items() if re.search(pattern, reason)), "")


def judge(report: pytest.TestReport | pytest.CollectReport) -> None:
    """Make a skip for a reason that is not in the list a failure."""
    if not report.skipped or hasattr(report, "wasxfail") or not isinstance(report.longrepr, tuple):
        return
    place, _line, text = report.longrepr
    reason = text.removeprefix("Skipped: ")
    if not explain(reason, str(place)):
        report.outcome = "failed"
        report.longrepr = f"skipped for a reason that tests/support/skips.py does not allow: {reason}"


def summarise(skipped: t.Iterable[t.Any]) -> list[str]:
    """Return a line for each reason, with how many tests it left out and why that may be."""
    found: collections.Counter[tuple[str, str]] = collections.Counter()
    for report in skipped:
        if isinstance(report.longrepr, tuple):
            reason = report.longrepr[2].removeprefix("Skipped: ")
            found[reason, explain(reason, str(report.longrepr[0]))] += 1
    return [f"not run: {count} tests: {reason} ({why})" for (reason, why), count in sorted(found.items())]
