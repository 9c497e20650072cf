# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decisions on drivers that no recorded host has; the recorded ones are in test_device_plans."""

from __future__ import annotations

import typing as t

from ansible_collections.muster.training.plugins.module_utils._model.device_plans import plan_devices
from ansible_collections.muster.training.tests.support.device_hosts import BARE


def action(facts: dict[str, t.Any], **options: t.Any) -> tuple[str, str]:
    plan = plan_devices("x", {**BARE, **facts}, {"gpu_driver": options}).gpu_driver
    return plan.action, plan.reason


def test_gpus_of_two_worlds_have_no_common_module() -> None:
    mixed = [{"pci": "a", "device": "1b38"}, {"pci": "b", "device": "2b85"}]
    assert action({"gpus": mixed})[0] == "refuse" and "no kernel module drives both" in action({"gpus": mixed})[1]


def test_secure_boot_that_cannot_be_read_is_not_off() -> None:
    assert action({"secure_boot": None})[0] == "refuse" and "cannot be read" in action({"secure_boot": None})[1]
    assert action({"secure_boot": True, "dkms_key": True})[0] == "install"


def test_a_mismatch_waits_for_a_boot_that_is_allowed() -> None:
    facts = {"driver": {"module": "595.71.05", "libraries": "595.91.07"}}
    assert action(facts)[0] == "refuse" and action(facts, reboot="when_needed")[0] == "reboot"


def test_after_a_boot_the_units_of_a_driver_that_came_by_the_role_are_started() -> None:
    facts = {**BARE, "driver": {"libraries": "595.91.07", "nouveau": True}}
    asked = {"gpu_driver": {"reboot": "when_needed"}}
    of_role = plan_devices("x", {**facts, "records": {"gpu-driver": True}}, asked).gpu_driver
    assert (of_role.action, of_role.units, of_role.blacklist) == ("reboot", ("nvidia-persistenced",), ("nouveau",))
    assert plan_devices("x", facts, asked).gpu_driver.units == ()
