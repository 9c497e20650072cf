# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decisions on drivers that no recorded host has; the recorded ones are in test_device_plans."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.device_plans import plan_devices
from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError
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


def test_of_a_driver_that_works_no_package_is_installed_again_for_a_unit_that_does_not_run() -> None:
    working = {"module": "595.91.07", "libraries": "595.91.07", "listed": 1, "owner": "cuda", "processes": 0}
    facts = {**BARE, "driver": working, "records": {"gpu-driver": True}, "persistence": False}
    plan = plan_devices("x", facts, {}).gpu_driver
    assert (plan.action, plan.packages, plan.units) == ("start", (), ("nvidia-persistenced",))
    cut = plan_devices("x", {**facts, "records": {"gpu-driver": False}}, {}).gpu_driver
    assert cut.action == "install" and "cut short" in cut.reason and cut.packages
    assert plan_devices("x", {**facts, "records": {}}, {}).gpu_driver.action == "keep"
    assert plan_devices("x", {**facts, "persistence": True}, {}).gpu_driver.action == "keep"


WORKING = {"module": "580.105.08", "libraries": "580.105.08", "listed": 1, "owner": "cuda", "processes": 0}


def upgrade(driver: dict[str, t.Any] | None = None, **options: t.Any) -> t.Any:
    facts = {**BARE, "driver": {**WORKING, **(driver or {})}}
    return plan_devices("x", facts, {"gpu_driver": {"upgrade": True, "reboot": "when_needed", **options}}).gpu_driver


def test_a_driver_that_works_is_brought_to_the_branch_that_is_asked_for() -> None:
    plan = upgrade(branch="595")
    assert (plan.action, plan.branch, plan.latest, plan.reboot) == ("upgrade", "595", True, "the driver was changed")
    assert plan.reason == "driver 580.105.08 is older than gpu_driver_branch, 595"
    assert plan.before[1] == "nvidia-driver-pinning-595"


def test_a_branch_may_be_a_number_as_yaml_has_it() -> None:
    assert upgrade(branch=595) == upgrade(branch="595")


def test_a_driver_is_brought_to_the_version_that_is_asked_for_within_its_branch() -> None:
    plan = upgrade(version="580.178.04")
    assert (plan.action, plan.branch) == ("upgrade", "580") and "older than gpu_driver_version" in plan.reason
    assert upgrade(version="580.105.08").action == "keep" and upgrade(version="580.95").action == "keep"


def test_a_newer_driver_than_asked_for_is_kept_and_said() -> None:
    plan = upgrade({"module": "610.57.04", "libraries": "610.57.04"}, branch="595")
    assert plan.action == "keep" and "driver 610.57.04 is newer than branch 595, and is kept" in plan.warnings


def test_without_leave_to_upgrade_another_branch_is_left_alone() -> None:
    plan = upgrade(branch="595", upgrade=False)
    assert plan.action == "keep" and plan.refusals == ()


@pytest.mark.parametrize(
    ("driver", "options", "says"),
    [
        ({"processes": 3}, {}, "3 processes use its GPUs"),
        ({}, {"reboot": "never"}, "a newer one needs a reboot"),
        ({"runfile": True, "owner": "runfile"}, {}, "no package owns it"),
    ],
)
def test_another_branch_is_refused_before_anything_is_changed(
    driver: dict[str, t.Any], options: dict[str, t.Any], says: str
) -> None:
    plan = upgrade(driver, branch="595", **options)
    assert plan.action == "refuse" and says in plan.refusals[0].problem


def test_gpus_of_the_last_branch_are_not_brought_to_a_newer_one() -> None:
    facts = {**BARE, "gpus": [{"pci": "a", "device": "1db1"}], "driver": WORKING}
    asked = {"gpu_driver": {"upgrade": True, "reboot": "when_needed", "branch": "595"}}
    plan = plan_devices("x", facts, asked).gpu_driver
    assert plan.action == "refuse" and "580 is the last one for volta GPUs" in plan.reason


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"version": "newest"}, "gpu_driver_version"),
        ({"version": "470.1.2"}, "Use one of 580, 595, 610"),
        ({"version": "595"}, "such as 595.91.07"),
        ({"version": "595.91.07", "branch": "610"}, "gpu_driver_branch is 610"),
    ],
)
def test_a_version_that_is_none_or_of_another_branch_is_refused_by_name(options: dict[str, t.Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        upgrade(**options)


def test_a_fabric_manager_of_the_old_driver_does_not_keep_the_new_one_away() -> None:
    facts = {**BARE, "driver": WORKING, "nvswitches": 4, "fabric_manager": {"version": "580.95.05"}}
    asked = {"reboot": "when_needed", "branch": "595"}
    assert plan_devices("x", facts, {"gpu_driver": {**asked, "upgrade": True}}).gpu_driver.action == "upgrade"
    assert plan_devices("x", facts, {"gpu_driver": asked}).gpu_driver.action == "refuse"


def test_an_upgrade_that_was_cut_short_before_its_boot_is_finished_with_one() -> None:
    facts = {**BARE, "driver": {**WORKING, "libraries": "595.91.07", "listed": None}, "records": {"gpu-driver": False}}
    asked = {"gpu_driver": {"upgrade": True, "reboot": "when_needed", "branch": "595"}}
    plan = plan_devices("x", facts, asked).gpu_driver
    assert (plan.action, plan.latest) == ("install", True) and plan.packages
    assert plan.reboot == "the kernel module is 580.105.08 and the libraries are 595.91.07"


def test_a_driver_whose_module_could_not_be_built_is_finished_without_a_boot() -> None:
    facts = {**BARE, "driver": {"libraries": "595.91.07"}, "records": {"gpu-driver": False}}
    plan = plan_devices("x", facts, {}).gpu_driver
    assert (plan.action, plan.reboot) == ("install", "") and plan.packages and "cut short" in plan.reason
    beside = plan_devices("x", {**facts, "driver": {"libraries": "595.91.07", "nouveau": True}}, {}).gpu_driver
    assert (beside.action, beside.blacklist) == ("install", ("nouveau",)) and "nouveau has the GPUs" in beside.reboot
    assert plan_devices("x", {**facts, "records": {"gpu-driver": True}}, {}).gpu_driver.action == "refuse"


def test_a_machine_of_the_rhel_family_that_has_epel_keeps_its_own() -> None:
    rocky = {"os": {"id": "rocky", "version": "9.6", "like": ["rhel"]}, "kernel": "5.14.0-570.12.1.el9_6.x86_64"}

    def names(**versions: str) -> list[str]:
        packages = {"versions": versions, "held": [], "broken": [], "manager": "dnf"}
        plan = plan_devices("x", {**BARE, **rocky, "packages": packages}, {}).gpu_driver
        return [item.name for item in plan.repositories]

    assert names() == ["cuda", "epel"] and names(**{"epel-release": "9-8.el9"}) == ["cuda"]


def test_what_the_role_has_locked_does_not_keep_its_next_run_away() -> None:
    held = {"versions": {}, "held": ["nvidia-open"], "broken": [], "manager": "dnf"}
    rhel = {"os": {"id": "rhel", "version": "10.0", "like": []}, "packages": held}
    assert action(rhel) == ("refuse", "held packages: nvidia-open")
    assert action({**rhel, "records": {"gpu-driver": False}})[0] == "install"
