# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The questions that several rules ask of a machine."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model import device_host
from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError


def host(**facts: t.Any) -> device_host.DeviceHost:
    return device_host.DeviceHost("gpu-1", {"os": {"id": "rocky", "version": "9.6", "like": ["rhel"]}, **facts})


def test_a_system_is_one_of_a_family() -> None:
    assert (host().system, host().release) == ("rhel", "9")
    ubuntu = device_host.DeviceHost("x", {"os": {"id": "ubuntu", "version": "24.04", "like": ["debian"]}})
    assert (ubuntu.system, ubuntu.release) == ("ubuntu", "24.04")


def test_versions_are_compared_by_their_numbers() -> None:
    assert device_host.parse_version("595.91.07") > device_host.parse_version("580.178.04")
    assert device_host.parse_version(None) == device_host.parse_version("None") == ()
    assert device_host.write_version((1, 17, 8)) == "1.17.8"


def test_an_option_is_refused_with_what_it_may_be() -> None:
    with pytest.raises(InputError, match=r"Use one of a, b"):
        device_host.require_choice("rdma_source", "c", ("a", "b"))


def test_packages_that_stand_in_the_way() -> None:
    packages = {"broken": ["nvidia-x (half-configured)"], "held": ["nvidia-y", "vim"], "manager": "apt"}
    found = device_host.check_packages(host(packages=packages, free_bytes=1 << 30), "nvidia-")
    assert [item.problem for item in found] == [
        "half-installed packages: nvidia-x (half-configured)",
        "held packages: nvidia-y",
        "1.0 GiB free below /var/lib, 3 are needed",
    ]


def test_a_working_driver_lists_every_gpu() -> None:
    two = [{"device": "2330"}, {"device": "2330"}]
    assert host(gpus=two, driver={"listed": 2}).has_working_driver
    assert not host(gpus=two, driver={"listed": 1}).has_working_driver
    assert host(gpus=two, driver={"listed": 1}, virtualisation={"kind": "container"}).has_working_driver
    assert host(records={"rdma": False}).was_cut_short("rdma") and not host().was_cut_short("rdma")
