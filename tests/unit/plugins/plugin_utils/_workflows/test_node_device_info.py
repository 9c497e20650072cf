# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""All hosts are asked at once, one request each; every refusal of every host is in one message."""

from __future__ import annotations

import pathlib
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.device_plans import ROLES
from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError, RefusedError
from ansible_collections.muster.training.plugins.module_utils._node import facts_devices, host_agent
from ansible_collections.muster.training.plugins.plugin_utils._workflows import node_device_info
from ansible_collections.muster.training.tests.support import device_hosts

RECORDED = {host["name"]: host for host in device_hosts.load_hosts()}


class Machine:
    """A recorded host that counts its requests."""

    def __init__(self, name: str, root: pathlib.Path) -> None:
        self.name = name
        self.requests = 0
        self._tree = device_hosts.write_host(root / name, RECORDED[name])

    def call(self, op: str, **values: t.Any) -> dict[str, t.Any]:
        self.requests += 1
        return host_agent.answer_request({"op": op, **values, **self._tree})


def read(root: pathlib.Path, *names: str, refuse: bool = True, **options: t.Any) -> tuple[dict[str, t.Any], int]:
    machines = [Machine(name, root) for name in names]
    remotes: t.Any = machines
    asked = dict.fromkeys(names, options)
    result = node_device_info.read_device_plans(remotes, asked, ROLES, refuse)
    return result, max(machine.requests for machine in machines)


def test_what_is_missing_is_told_by_role_and_each_host_is_asked_once(tmp_path: pathlib.Path) -> None:
    names = ("all-there", "debian13-5090", "toolkit-missing-k3s-runs", "bare-roce")
    result, requests = read(tmp_path, *names)
    assert requests == 1 and not result["changed"] and result["refusals"] == []
    assert result["stale"] == {
        "gpu_driver": ["debian13-5090"],
        "container_runtime": ["debian13-5090", "toolkit-missing-k3s-runs"],
        "rdma": ["bare-roce"],
    }
    assert result["nodes"]["debian13-5090"]["gpu_driver"]["packages"] == (
        "nvidia-driver-cuda",
        "nvidia-kernel-open-dkms",
    )


def test_refusals_of_all_hosts_are_in_one_message(tmp_path: pathlib.Path) -> None:
    with pytest.raises(RefusedError) as caught:
        read(tmp_path, "gpu-fell-off", "toolkit-1-17-3", "all-there")
    text = str(caught.value)
    assert "gpu-fell-off: 8 GPUs are on the PCI bus, nvidia-smi lists 7" in text
    assert "toolkit-1-17-3: nvidia-container-toolkit 1.17.3 is below 1.17.8" in text
    assert "Nothing was changed on any host" in text


def test_refusals_can_be_read_without_failing(tmp_path: pathlib.Path) -> None:
    result, _requests = read(tmp_path, "gpu-fell-off", refuse=False)
    assert len(result["refusals"]) == 1 and result["stale"]["gpu_driver"] == []


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"gpu_driver": {"branch": "470"}}, "gpu_driver_branch"),
        ({"gpu_driver": {"sourc": "cuda"}}, "Did you mean gpu_driver_source?"),
        ({"container_runtime": {"version": "1.17.3"}}, "CVE-2025-23266"),
        ({"rdma": {"source": "mofed"}}, "Use one of inbox, doca, none"),
    ],
)
def test_options_are_refused_by_name(tmp_path: pathlib.Path, options: dict[str, t.Any], says: str) -> None:
    with pytest.raises(InputError, match=says.replace("?", r"\?")):
        read(tmp_path, "all-there", **options)


def test_a_driver_that_is_nobodys_business_is_told_and_not_refused(tmp_path: pathlib.Path) -> None:
    result, _requests = read(tmp_path, "nouveau-has-a-display", gpu_driver={"source": "none"})
    plan = result["nodes"]["nouveau-has-a-display"]["gpu_driver"]
    assert plan["action"] == "none" and result["refusals"] == []


def test_this_machine_can_be_read() -> None:
    facts = facts_devices.answer({})
    assert facts["kernel"] and facts["os"]["id"] and isinstance(facts["gpus"], list)


def test_a_machine_without_such_hardware_is_asked_once_and_lacks_nothing(tmp_path: pathlib.Path) -> None:
    class Plain:
        name, requests = "cpu-1", 0

        def call(self, op: str, **values: t.Any) -> dict[str, t.Any]:
            self.requests += 1
            return host_agent.answer_request({"op": op, **values, "root": str(tmp_path), "path": []})

    machine: t.Any = Plain()
    result = node_device_info.read_device_plans([machine], {"cpu-1": {}}, ROLES, True)
    assert machine.requests == 1 and all(hosts == [] for hosts in result["stale"].values())
    assert [result["nodes"]["cpu-1"][role]["action"] for role in ROLES] == ["none"] * 3
    assert not result["nodes"]["cpu-1"]["facts"]["drained"]


def node(name: str, **spec: t.Any) -> t.Any:
    ready = [{"type": "Ready", "status": "True"}]
    return {"kind": "Node", "metadata": {"name": name}, "spec": spec, "status": {"conditions": ready}}


def wave(root: pathlib.Path, limit: str, nodes: t.Any = (), *names: str, **driver: t.Any) -> dict[str, t.Any]:
    machines: t.Any = [Machine(name, root) for name in names]
    asked = {name: {"gpu_driver": {"upgrade": True, "reboot": "when_needed", **driver}} for name in names}
    waves = node_device_info.Waves(limit, {name: name for name in names}, nodes)
    return node_device_info.read_device_plans(machines, asked, ("gpu_driver",), True, waves)


def test_waves_are_of_machines_whose_driver_is_old_and_counted_by_their_nodes(tmp_path: pathlib.Path) -> None:
    result = wave(tmp_path, "1", [node("all-there")], "all-there", "debian13-5090", branch="610")
    assert result["waves"] == [["all-there"], ["debian13-5090"]], "in the order in which they were named"
    assert result["wave_table"][0] == "wave 1 of 2 (at most 1 unavailable): all-there"
    assert wave(tmp_path / "b", "1", [], "all-there", branch="580")["waves"] == []


def test_a_daemon_that_does_not_run_takes_no_pod_off_its_machine(tmp_path: pathlib.Path) -> None:
    class Idle(Machine):
        def call(self, op: str, **values: t.Any) -> dict[str, t.Any]:
            facts = super().call(op, **values)
            return {**facts, "persistence": False, "records": {"gpu-driver": True}}

    machine: t.Any = Idle("all-there", tmp_path)
    asked = {"all-there": {"gpu_driver": {"upgrade": True, "reboot": "when_needed", "branch": "580"}}}
    waves = node_device_info.Waves("1", {"all-there": "all-there"}, [node("all-there")])
    result = node_device_info.read_device_plans([machine], asked, ("gpu_driver",), True, waves)
    assert result["stale"] == {"gpu_driver": ["all-there"]}, "devices starts it"
    assert result["waves"] == [] and result["wave_table"] == [
        "the drivers of all machines are as they should be",
        "all-there: nvidia-persistenced does not run. Run devices, which starts it and takes no pod off the machine",
    ]


def test_a_node_that_is_closed_leaves_none_to_be_closed(tmp_path: pathlib.Path) -> None:
    with pytest.raises(RefusedError, match=r"so many take no pods: toolkit-missing-k3s-runs"):
        wave(
            tmp_path,
            "1",
            [node("toolkit-missing-k3s-runs", unschedulable=True), node("all-there")],
            "all-there",
            "toolkit-missing-k3s-runs",
            branch="610",
        )


def test_a_bad_limit_asks_no_machine(tmp_path: pathlib.Path) -> None:
    with pytest.raises(InputError, match="max_unavailable"):
        node_device_info.read_device_plans([], {}, ("gpu_driver",), True, node_device_info.Waves("none"))


def test_without_waves_none_are_returned(tmp_path: pathlib.Path) -> None:
    result, _requests = read(tmp_path, "all-there")
    assert (result["waves"], result["wave_table"]) == ([], [])
