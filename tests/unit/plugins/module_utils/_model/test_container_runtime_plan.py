# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decisions on container runtimes that no recorded host has; the others are in test_device_plans."""

from __future__ import annotations

import typing as t

from ansible_collections.muster.training.plugins.module_utils._model.device_plans import plan_devices
from ansible_collections.muster.training.tests.support.device_hosts import BARE


def plan(runtime: dict[str, t.Any], **facts: t.Any) -> t.Any:
    driver = {"module": "595.71.05", "libraries": "595.71.05", "listed": 1}
    return plan_devices("x", {**BARE, "driver": driver, "runtime": runtime, **facts}, {}).container_runtime


def test_a_toolkit_of_no_package_is_kept_and_told() -> None:
    found = plan({"program": "/usr/local/nvidia/toolkit/nvidia-container-runtime", "cdi_specs": ["nvidia.yaml"]})
    assert found.action == "keep" and "belongs to no package" in found.warnings[0]


def test_what_was_cut_short_is_installed_again() -> None:
    packages = dict.fromkeys(("nvidia-container-toolkit", "libnvidia-container1"), "1.20.2")
    runtime = {"packages": packages, "program": "/usr/bin/nvidia-container-runtime"}
    assert plan(runtime).action == "keep"
    assert plan(runtime, records={"container-runtime": False}).reason == "its installation was cut short"


def test_without_a_driver_there_is_nothing_to_give_to_containers() -> None:
    assert plan({}, gpus=[]).action == "none"
