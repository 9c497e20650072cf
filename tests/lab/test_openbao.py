# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""OpenBao deployed on a bare machine by the playbook, bound, sealed, and taken away again.

The tests build on each other, in their order.
"""

from __future__ import annotations

import time
import typing as t
import urllib.error

import pytest

from ansible_collections.muster.training.tests.e2e.playbook_world import Result
from ansible_collections.muster.training.tests.lab import openbao
from ansible_collections.muster.training.tests.lab.k3s.operator import SERVER, Operator
from ansible_collections.muster.training.tests.lab.k3s.session import find_differences, open_operator
from ansible_collections.muster.training.tests.support import canary
from ansible_collections.muster.training.tests.support.kube_lab import NOTES

UNIT = "muster-bao.service"


class World(t.NamedTuple):
    """The operator, the folder of the release, and what the machines were before anything was done."""

    operator: Operator
    release: str
    before: dict[str, list[str]]

    def services(self, *words: str, state: str = "present", provider: str = "openbao", **deploy: t.Any) -> Result:
        """Run the playbook for a service of secrets on the first machine."""
        service = {"name": "bao", "kind": "secrets", "mode": "deploy", "state": state, "provider": provider}
        asked = {**service, "deploy": {"host": SERVER, **deploy}}
        return self.operator.play("services", *words, muster_services=[asked], secrets_source=self.release)

    def begun(self) -> str:
        """Return when the service was started."""
        lab = self.operator.lab
        return str(lab.ask(SERVER, "systemctl", "show", UNIT, "--property=ExecMainStartTimestampMonotonic"))


@pytest.fixture(scope="module")
def world() -> t.Iterator[World]:
    openbao.program()
    with open_operator() as operator:
        operator.hosts = {}
        release = openbao.release(operator.folder)
        yield World(operator, str(release), {node.name: operator.lab.state(node.name) for node in operator.lab.nodes})


def test_a_program_that_is_not_there_and_a_check_change_nothing(world: World) -> None:
    result = world.services(provider="vault")
    assert result.code != 0 and "linux_amd64.zip does not exist. Place vault_" in result.errors[0], result.output
    result = world.services("--check")
    assert result.code == 0 and result.changed > 0, result.output
    assert find_differences(world.operator, world.before) == []
    assert not (world.operator.state / "services").exists()


def test_it_is_deployed_bound_and_its_material_is_nowhere_else(world: World) -> None:
    result = world.services("-vvvvv", "--diff")
    assert result.code == 0, result.output
    NOTES.append(f"services.yml deploys OpenBao on a machine: {result.seconds:.1f} s")
    client = openbao.Client(world.operator.state)
    assert client.binding["mode"] == "deploy" and client.binding["endpoint"].startswith("https://")
    own = client.ask("GET", "auth/token/lookup-self", token=client.credentials["VAULT_TOKEN"])["data"]
    assert own["policies"] == ["default", "muster-controller"]
    with pytest.raises(urllib.error.HTTPError, match="403"):
        client.ask("GET", "sys/policies/acl", token=client.credentials["VAULT_TOKEN"])
    client.ask("POST", "secret/data/team/train", {"data": {"TOKEN": "canary-of-the-lab-0001"}})
    lab = world.operator.lab
    seen = lab.ask(SERVER, "sh", "-c", "cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ | tr '\\0' '\\n'")
    journal = lab.ask(SERVER, "sh", "-c", "journalctl --no-pager; cat /var/log/syslog 2>/dev/null || true")
    for secret in client.secrets():
        for name, form in canary.encodings(secret).items():
            for where, text in (("output", result.output), ("processes", seen), ("journal", journal)):
                assert form.decode() not in text, f"{name} in {where}"
    place = world.operator.state / "services" / "bao.credentials"
    assert place.stat().st_mode & 0o777 == 0o600
    held = [item for item in world.operator.state.rglob("*") if item.is_file() and item != place]
    assert not [item for item in held if any(secret.encode() in item.read_bytes() for secret in client.secrets())]
    files = lab.ask(SERVER, "sh", "-c", "stat -c '%a %U' /etc/muster/services/bao/*")
    assert set(files.splitlines()) == {"600 root"}


def test_a_second_run_changes_nothing_and_starts_nothing(world: World) -> None:
    begun = world.begun()
    result = world.services()
    NOTES.append(f"services.yml for OpenBao again: {result.seconds:.1f} s")
    assert result.code == 0 and result.changed == 0 and world.begun() == begun, result.output


def test_a_sealed_one_is_named_and_a_restart_unseals_it(world: World) -> None:
    client, lab = openbao.Client(world.operator.state), world.operator.lab
    client.ask("PUT", "sys/seal")
    bound = {"name": "bao", "kind": "secrets", "mode": "bind", "endpoint": client.binding["endpoint"]}
    credentials = str(world.operator.state / "services" / "bao.credentials")
    bound |= {"ca": client.binding["ca"], "secret_ref": {"from": "file", "path": credentials}}
    result = world.operator.play("services", muster_services=[bound])
    assert result.code != 0 and "is sealed or not initialised" in result.errors[0], result.output
    # What deploys it brings it back: it is not ready.
    result = world.services()
    assert result.code == 0 and result.changed == 1, result.output
    assert client.ask("GET", "secret/data/team/train")["data"]["data"]["TOKEN"] == "canary-of-the-lab-0001"
    lab.ask(SERVER, "systemctl", "restart", UNIT)
    began = time.monotonic()
    while True:
        try:
            assert client.ask("GET", "sys/health")["sealed"] is False
            break
        except OSError:
            assert time.monotonic() < began + 30
            time.sleep(0.1)
    NOTES.append(f"OpenBao is unsealed {time.monotonic() - began:.1f} s after a restart")


def test_a_removal_keeps_the_data_and_a_new_deployment_opens_it(world: World) -> None:
    result = world.services(state="absent")
    assert result.code == 0 and result.changed > 0, result.output
    assert not (world.operator.state / "bindings" / "bao.json").exists()
    assert world.services(state="absent").changed == 0
    assert world.services().code == 0
    client = openbao.Client(world.operator.state)
    assert client.ask("GET", "secret/data/team/train")["data"]["data"]["TOKEN"] == "canary-of-the-lab-0001"
    result = world.services(state="absent", delete_data=True)
    assert result.code == 0, result.output
    assert find_differences(world.operator, world.before) == []
    assert not (world.operator.state / "services" / "bao.credentials").exists()
