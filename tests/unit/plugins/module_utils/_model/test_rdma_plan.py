# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decisions on RDMA that no recorded host has; the others are in test_device_plans."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.device_plans import plan_devices
from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError
from ansible_collections.muster.training.tests.support.device_hosts import BARE

PORT: t.Final[dict[str, t.Any]] = {
    "name": "mlx5_0",
    "port": 1,
    "vendor": "15b3",
    "link_layer": "ethernet",
    "state": "active",
    "rate_gbps": 100.0,
    "netdev": "eth0",
    "mtu": 9000,
    "gid_types": ["roce_v2"],
    "pci": None,
}


def plan(*ports: dict[str, t.Any], rdma: t.Any = None, **options: t.Any) -> t.Any:
    facts = {**BARE, "gpus": [], "rdma": {"ports": list(ports), **(rdma or {})}}
    return plan_devices("x", facts, {"rdma": options}).rdma


def test_an_excluded_interface_is_not_given_to_jobs() -> None:
    found = plan(PORT, {**PORT, "name": "mlx5_1", "netdev": "eth1"}, exclude=["eth1"])
    assert [(item.name, item.used, item.reason) for item in found.hcas] == [
        ("mlx5_0", True, ""),
        ("mlx5_1", False, "left out by rdma_exclude"),
    ]
    assert found.nccl_ib_hca == "=mlx5_0"


def test_limits_of_services_are_raised_where_they_are_low() -> None:
    found = plan(PORT, rdma={"memlock": {"k3s": 8 << 20, "containerd": "unlimited"}})
    assert found.memlock == ("k3s",) and found.reload


def test_a_limit_that_waits_for_the_units_next_start_is_no_work_and_is_told() -> None:
    found = plan(PORT, rdma={"memlock": {"k3s": 8 << 20}, "memlock_declared": {"k3s": "unlimited"}})
    assert found.memlock == () and any("k3s may lock 8192 KiB until it starts again" in line for line in found.warnings)
    unread = plan(PORT, rdma={"memlock": {"k3s": 8 << 20}, "memlock_declared": {}})
    assert unread.memlock == ("k3s",)


def test_an_mtu_is_written_for_all_interfaces_while_one_is_low() -> None:
    ports = [{**PORT, "mtu": 1500}, {**PORT, "name": "mlx5_1", "netdev": "eth1"}, {**PORT, "name": "b", "netdev": "c"}]
    ports[2]["mtu"] = 9216
    assert plan(*ports, mtu=9000).mtu == ("eth0", "eth1") and plan(*ports[1:], mtu=9000).mtu == ()


def test_modules_that_are_loaded_are_written_where_a_set_up_was_cut_before_its_file() -> None:
    loaded = ["ib_uverbs", "rdma_cm", "rdma_ucm", "ib_umad"]
    facts = {**BARE, "gpus": [], "rdma": {"ports": [PORT], "modules": loaded, "doca": "3.5.0"}}

    def modules(**more: t.Any) -> tuple[str, ...]:
        return plan_devices("x", {**facts, **more}, {}).rdma.modules

    assert modules() == () and modules(records={"rdma": True}) == tuple(loaded)
    written = {"rdma": ["/etc/modules-load.d/muster-rdma.conf"]}
    assert modules(records={"rdma": True}, own_files=written) == ()


def test_doca_needs_a_boot_that_is_noted_on_the_machine() -> None:
    rdma = {"modules": ["ib_uverbs", "rdma_cm", "rdma_ucm", "ib_umad"], "doca": "3.5.0"}
    facts = {**BARE, "gpus": [], "rdma": {"ports": [PORT], **rdma}}
    asked = plan_devices("x", {**facts, "rdma": {"ports": [PORT]}}, {"rdma": {"source": "doca"}}).rdma
    assert asked.action == "install" and "take the place" in asked.reboot
    waiting = plan_devices("x", {**facts, "reboot": asked.reboot}, {"rdma": {"source": "doca"}}).rdma
    assert (waiting.action, waiting.reboot, waiting.packages) == ("reboot", asked.reboot, ())
    booted = plan_devices("x", {**facts, "reboot": None}, {"rdma": {"source": "doca"}}).rdma
    assert (booted.action, booted.reboot) == ("keep", "")


def test_a_port_without_a_roce_gid_is_told() -> None:
    assert any("no GID of RoCE v2" in line for line in plan({**PORT, "gid_types": ["roce_v1"]}).warnings)


ACS_ON: t.Final = {"acs": {"enabled_on": ["0000:01:00.0"], "bridges": ["0000:01:00.0", "0000:02:00.0"]}}
DONE: t.Final = {"modules": ["ib_uverbs", "rdma_cm", "rdma_ucm", "ib_umad"], "doca": "3.5.0"}


def plan_again(packages: dict[str, str], **options: t.Any) -> t.Any:
    facts = {
        **BARE,
        "packages": {**BARE["packages"], "versions": packages},
        "rdma": {"ports": [PORT], **DONE, **ACS_ON},
    }
    return plan_devices("x", facts, {"rdma": options}).rdma


def test_acs_goes_off_on_all_bridges_that_have_it_so_that_the_unit_has_those_that_are_off_already() -> None:
    assert plan_again({}).acs == () and plan_again({}).packages == ()
    asked = plan_again({}, acs="disabled")
    assert asked.acs == ("0000:01:00.0", "0000:02:00.0") and asked.packages == ("pciutils",)
    assert asked.reason == "missing: pciutils, ACS off on 0000:01:00.0, 0000:02:00.0"
    assert plan_again({"pciutils": "3.9"}, acs="disabled").packages == ()


def test_what_a_removal_left_in_force_until_the_next_boot_is_set_up_again() -> None:
    bridges = ("0000:01:00.0",)
    is_on = {"acs": {"enabled_on": [], "bridges": list(bridges)}}
    booted = {"iommu": {"enabled": True, "mode": "passthrough", "booted": True, "configured": False}}
    asked = {"acs": "disabled", "iommu": "passthrough"}

    def choose(options: dict[str, str], removed: bool = True, own: tuple[str, ...] = (), **iommu: bool) -> t.Any:
        rdma = {**DONE, **is_on, "iommu": {**booted["iommu"], **iommu}, "removed": removed}
        facts = {**BARE, "boot": {"loader": "grubby"}, "own_files": {"rdma": own}, "rdma": {"ports": [PORT], **rdma}}
        found = plan_devices("x", facts, {"rdma": options}).rdma
        return found.acs, found.kernel_options, found.reboot

    assert choose(asked, removed=False) == ((), (), "") and choose({}) == ((), (), "")
    assert choose(asked) == (bridges, ("iommu=pt",), ""), "the machine need not boot for what is in force"
    assert choose(asked, booted=False)[2] == "iommu=pt is an option of its next boot"
    unit = "/etc/systemd/system/muster-acs.service"
    assert choose(asked, own=(unit,), configured=True) == (bridges, (), ""), "a unit that a cut run did not link"
    link = "/etc/systemd/system/multi-user.target.wants/muster-acs.service"
    assert choose(asked, own=(unit, link), configured=True) == ((), (), "")


def test_nothing_is_installed_for_acs_where_no_package_may_come() -> None:
    (refusal,) = plan_again({}, acs="disabled", source="none").refusals
    assert refusal.problem.startswith("setpci (pciutils) is not there") and "rdma_acs: keep" in refusal.fix
    assert plan_again({"pciutils": "3.9"}, acs="disabled", source="none").acs


@pytest.mark.parametrize(("name", "value"), [("acs", "off"), ("acs", False), ("iommu", "on")])
def test_another_value_of_acs_or_iommu_is_refused(name: str, value: t.Any) -> None:
    with pytest.raises(InputError, match=f"rdma_{name}: is .*Use one of keep, "):
        plan(PORT, **{name: value})
