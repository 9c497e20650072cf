# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A check on a machine that has never read its lists of packages says what would be installed, and asks apt for none."""

from __future__ import annotations

import pathlib
import typing as t

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template

ROLE = pathlib.Path(__file__).resolve().parents[4] / "roles" / "device_packages"
TASKS = {task["name"]: task for task in yaml.safe_load((ROLE / "tasks" / "ensure_present.yml").read_text())}
THERE = "ii  bash\nii  libc6:amd64\nrc  nfs-common\n"


def runs(name: str, **values: t.Any) -> bool:
    """Whether a task runs on a machine with the packages of ``THERE``."""
    known: dict[str, t.Any] = {}
    for kind in ("defaults", "vars"):
        known |= yaml.safe_load((ROLE / kind / "main.yml").read_text())
    known |= {"__device_packages_there": {"stdout_lines": THERE.splitlines()}, "ansible_check_mode": True, **values}
    trusted = {key: trust_as_template(value) if isinstance(value, str) else value for key, value in known.items()}
    templar = Templar(loader=DataLoader(), variables=trusted)
    return bool(templar.evaluate_conditional(trust_as_template(TASKS[name]["when"])))


@pytest.mark.parametrize(
    ("packages", "values", "said"),
    [
        (["nfs-common"], {}, True),
        (["bash", "libc6"], {}, False),
        (["bash"], {"device_packages_repositories": [{"name": "more"}]}, True),
        # dnf reads its lists itself, in a check too.
        (["nfs-utils"], {"device_packages_manager": "dnf"}, False),
    ],
)
def test_a_check_asks_apt_for_nothing_that_it_may_not_know(
    packages: list[str], values: dict[str, t.Any], said: bool
) -> None:
    given = {"device_packages_packages": packages, **values}
    assert runs("Say what would be installed", **given) is said
    assert runs("Install the packages", **given) is not said


def test_what_is_not_a_check_installs() -> None:
    given = {"device_packages_packages": ["nfs-common"], "ansible_check_mode": False}
    assert runs("Install the packages", **given) and not runs("Say what would be installed", **given)
