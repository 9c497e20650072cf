# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How long ``site`` takes on three booted machines until the first training step, and again."""

from __future__ import annotations

import json
import os
import time

import pytest

from ansible_collections.muster.training.tests.lab.k3s.site import open_site
from ansible_collections.muster.training.tests.support.kube_lab import NOTES

# The gate from the command to the first training step.
FIRST_STEP_S = 240
SIZE = 3


@pytest.mark.torch
def test_three_bare_machines_train_within_four_minutes() -> None:
    with open_site(SIZE) as operator:
        began = time.time()
        first = operator.play("site")
        assert first.code == 0, first.output
        (folder,) = (operator.state / "runs").iterdir()
        lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        step_s = min(line["at"] for line in lines if "step" in line) - began
        again = operator.play("site")
        assert again.code == 0 and again.changed == 0, again.output
        loads = [round(value, 1) for value in os.getloadavg()]
        phases = json.loads((operator.state / "site.json").read_text())["phases"]
        seconds = {item["name"]: round(item["seconds"], 1) for item in phases}
        NOTES.append(
            f"site on {SIZE} machines: first step after {step_s:.0f} s, whole {first.seconds:.0f} s, again "
            f"{again.seconds:.1f} s ({seconds}), load {loads}"
        )
        assert step_s <= FIRST_STEP_S
