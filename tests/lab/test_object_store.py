# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""SeaweedFS deployed on a bare machine by the playbook, bound from two, and taken away again.

The tests build on each other, in their order.
"""

from __future__ import annotations

import json
import typing as t

import pytest

from ansible_collections.muster.training.tests.e2e.playbook_world import Result
from ansible_collections.muster.training.tests.lab import seaweedfs
from ansible_collections.muster.training.tests.lab.k3s.operator import AGENT, SERVER, Operator
from ansible_collections.muster.training.tests.lab.k3s.session import find_differences, open_operator
from ansible_collections.muster.training.tests.support.kube_lab import NOTES

UNIT = "muster-store.service"


class World(t.NamedTuple):
    """The operator, the folder of the release, and what the machines were before anything was done."""

    operator: Operator
    release: str
    before: dict[str, list[str]]

    def services(self, *words: str, state: str = "present", hosts: t.Any = None, **deploy: t.Any) -> Result:
        """Run the playbook for a store on the first machine."""
        service = {
            "name": "store",
            "kind": "object_store",
            "mode": "deploy",
            "state": state,
            "deploy": {"host": SERVER, **deploy},
            "resources": [{"purpose": name, "ref": name} for name in ("datasets", "checkpoints", "artifacts")],
        }
        source = {"object_store_source": self.release}
        return self.operator.play("services", *words, hosts=hosts, muster_services=[service], **source)

    def secrets(self) -> list[str]:
        """Return the credentials that were made."""
        text = (self.operator.state / "services" / "store.credentials").read_text()
        return [line.partition(" = ")[2] for line in text.splitlines() if " = " in line]


@pytest.fixture(scope="module")
def world() -> t.Iterator[World]:
    programs = seaweedfs.services_folder()
    with open_operator() as operator:
        operator.programs = programs
        operator.hosts = {}
        release = seaweedfs.release(operator.folder)
        before = {node.name: operator.lab.state(node.name) for node in operator.lab.nodes}
        yield World(operator, str(release), before)


def test_a_rented_machine_is_refused(world: World) -> None:
    rented = {"muster_node": {"name": SERVER, "ownership": "rented"}}
    result = world.services(hosts={SERVER: rented})
    assert result.code != 0 and "is rented" in result.errors[0], result.output
    assert find_differences(world.operator, world.before) == []


def test_a_check_predicts_and_changes_nothing(world: World) -> None:
    result = world.services("--check")
    assert result.code == 0 and result.changed > 0, result.output
    assert find_differences(world.operator, world.before) == []
    assert not (world.operator.state / "services").exists()


def test_the_store_is_deployed_and_bound_from_both_machines(world: World) -> None:
    result = world.services("-vvv", "--diff")
    assert result.code == 0, result.output
    NOTES.append(f"services.yml deploys SeaweedFS on a machine: {result.seconds:.1f} s")
    binding = json.loads((world.operator.state / "bindings" / "store.json").read_text())
    assert [(row["node"], row["ok"]) for row in binding["reachable_from"]] == [(SERVER, True), (AGENT, True)]
    assert binding["mode"] == "deploy" and {item["purpose"] for item in binding["resources"]} == {
        "datasets",
        "checkpoints",
        "artifacts",
    }
    lab = world.operator.lab
    argv = lab.ask(SERVER, "sh", "-c", "cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ | tr '\\0' '\\n'")
    journal = lab.ask(SERVER, "journalctl", "--no-pager")
    for secret in world.secrets():
        assert secret not in result.output and secret not in argv and secret not in journal
    modes = lab.ask(SERVER, "stat", "-c", "%a %U", "/etc/muster/services/store/s3.json", "/etc/muster/services/store")
    assert modes.splitlines()[0] == "600 root"
    # What its parts ask each other without a key is on loopback; gRPC of the gateway wants a certificate.
    listening = lab.ask(SERVER, "ss", "-ltn")
    outside = {line.split()[3].rpartition(":")[2] for line in listening.splitlines()[1:] if "127.0.0" not in line}
    assert {"8333", "18333"} <= outside and not {"8334", "8335", "8336", "18334", "18335", "18336"} & outside


def test_a_second_run_changes_nothing_within_ten_seconds(world: World) -> None:
    started = world.operator.lab.ask(SERVER, "systemctl", "show", UNIT, "--property=ExecMainStartTimestampMonotonic")
    result = world.services()
    NOTES.append(f"services.yml again: {result.seconds:.1f} s")
    assert result.code == 0 and result.changed == 0, result.output
    again = world.operator.lab.ask(SERVER, "systemctl", "show", UNIT, "--property=ExecMainStartTimestampMonotonic")
    assert again == started


def test_a_service_that_was_stopped_or_changed_is_brought_back(world: World) -> None:
    lab = world.operator.lab
    lab.ask(SERVER, "systemctl", "stop", UNIT)
    lab.ask(SERVER, "sh", "-c", "echo >> /etc/muster/services/store/s3.json")
    result = world.services()
    assert result.code == 0 and result.changed == 1, result.output
    assert lab.ask(SERVER, "systemctl", "is-active", UNIT).strip() == "active"


def test_a_removal_keeps_the_data_and_a_new_deployment_finds_it(world: World) -> None:
    lab, place = world.operator.lab, "/var/lib/private/muster-store"
    result = world.services(state="absent")
    assert result.code == 0 and result.changed > 0, result.output
    left = find_differences(world.operator, world.before)
    assert left and all(
        any(kept in line for kept in (place, "/var/lib/private", "/var/lib/muster")) for line in left
    ), left
    assert world.services(state="absent").changed == 0
    assert world.services().code == 0
    assert lab.ask(SERVER, "sh", "-c", f"ls {place} | wc -l").strip() != "0"
    result = world.services(state="absent", delete_data=True)
    assert result.code == 0, result.output
    assert find_differences(world.operator, world.before) == []
    assert not (world.operator.state / "services" / "store.credentials").exists()
