# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Two machines over SSH into a tailnet of a real headscale and out of it again, by the playbook as users run it.

The tests build on each other, in their order.
"""

from __future__ import annotations

import json
import typing as t

import pytest

from ansible_collections.muster.training.tests.lab import headscale
from ansible_collections.muster.training.tests.lab.k3s.operator import AGENT, SERVER, Operator
from ansible_collections.muster.training.tests.lab.k3s.session import find_differences, open_operator
from ansible_collections.muster.training.tests.support.kube_lab import NOTES
from ansible_collections.muster.training.tests.support.node_lab import eventually

OWNERS_NAME = "owners-name"


class World(t.NamedTuple):
    """The operator, the control server, and what the machines were before anything was done."""

    operator: Operator
    server: headscale.Headscale
    before: dict[str, list[str]]

    def mesh(self, *words: str, key: str = "", **values: t.Any) -> t.Any:
        """Run the playbook; ``key`` is for the one machine that needs it."""
        if key:
            place = self.operator.folder / "key"
            place.write_text(key)
            values["mesh_auth_key_file"] = str(place)
        return self.operator.play("mesh", *words, mesh_login_server=self.server.url, **values)

    def tailscale(self, node: str, *words: str) -> str:
        return self.operator.lab.ask(node, "/usr/local/bin/tailscale", *words)

    def differences(self) -> list[str]:
        """What is other than before on the machines, line by line."""
        return find_differences(self.operator, self.before)


@pytest.fixture(scope="module")
def world() -> t.Iterator[World]:
    with open_operator() as operator:
        release = headscale.release(operator.lab, operator.folder)
        operator.values |= {"mesh_source": str(release), "mesh_version": headscale.VERSION}
        before = {node.name: operator.lab.state(node.name) for node in operator.lab.nodes}
        yield World(operator, headscale.Headscale(operator.lab, SERVER), before)


def test_without_a_key_nothing_is_done(world: World) -> None:
    result = world.mesh()
    assert result.code != 0 and result.changed == 0, result.output
    assert all("is not in the mesh and has no key to join with" in line for line in result.errors), result.output
    assert world.differences() == []


def test_a_check_predicts_and_changes_nothing(world: World) -> None:
    result = world.mesh("--check", key="tskey-auth-unused")
    assert result.code == 0 and result.recap[SERVER]["changed"] == 1, result.output
    assert world.differences() == []


def test_a_refused_key_is_told_and_is_in_no_output(world: World) -> None:
    key = "hskey-auth-0123456789ab-" + "x" * 64
    result = world.mesh("--limit", AGENT, "-vvv", key=key)
    assert result.code != 0 and len(result.errors) == 1, result.output
    assert "the tailnet refused the key" in result.errors[0], result.output
    assert key not in result.output
    assert world.operator.lab.ask(AGENT, "sh", "-c", "ls -d /run/muster-mesh-* 2>/dev/null || true") == ""


def test_machines_join_with_a_key_each(world: World) -> None:
    for name in (SERVER, AGENT):
        key = world.server.create_key()
        result = world.mesh("--limit", name, key=key)
        assert result.code == 0 and result.recap[name]["changed"] == 1, result.output
        assert key not in result.output
        NOTES.append(f"mesh.yml, {name} joins: {result.seconds:.1f} s")
    assert world.server.names() == [SERVER, AGENT]
    address = json.loads(world.tailscale(AGENT, "status", "--json"))["TailscaleIPs"][0]
    assert "pong from lab-2" in world.tailscale(SERVER, "ping", "--c", "3", address)


def test_again_nothing_is_changed_or_started(world: World) -> None:
    show = ("systemctl", "show", "tailscaled", "--property=InvocationID", "--value")
    before = [world.operator.lab.ask(name, *show) for name in (SERVER, AGENT)]
    result = world.mesh()
    assert result.code == 0 and result.changed == 0, result.output
    assert [world.operator.lab.ask(name, *show) for name in (SERVER, AGENT)] == before
    NOTES.append(f"mesh.yml again: {result.seconds:.1f} s")


def test_preferences_are_set_one_by_one_and_the_owners_stay(world: World) -> None:
    world.tailscale(AGENT, "set", "--shields-up", "--advertise-routes=10.99.0.0/16")
    result = world.mesh(mesh_prefs={"accept_routes": True})
    assert result.code == 0 and result.changed == 2, result.output
    prefs = json.loads(world.tailscale(AGENT, "debug", "prefs"))
    assert prefs["RouteAll"] is True and prefs["ShieldsUp"] is True and prefs["AdvertiseRoutes"] == ["10.99.0.0/16"]


def test_a_machine_in_another_tailnet_is_refused(world: World) -> None:
    result = world.operator.play("mesh", mesh_login_server="https://headscale.example.com")
    assert result.code != 0 and result.changed == 0, result.output
    assert all(f"is in the tailnet of {world.server.url}" in line for line in result.errors), result.output


def test_a_program_that_was_replaced_comes_back(world: World) -> None:
    world.operator.lab.ask(
        AGENT, "sh", "-c", "rm /usr/local/bin/tailscale && ln -s /bin/false /usr/local/bin/tailscale"
    )
    result = world.mesh()
    assert result.code == 0 and result.recap[AGENT]["changed"] == 1, result.output
    assert "pong from lab-1" in world.tailscale(AGENT, "ping", "--c", "3", SERVER)


def test_removed_the_machines_are_as_they_were_found(world: World) -> None:
    result = world.mesh(mesh_state="absent")
    assert result.code == 0, result.output
    eventually(lambda: world.server.online() == [], "the control server to see nobody")
    world.server.down()
    assert world.differences() == []
    again = world.operator.play("mesh", mesh_state="absent")
    assert again.code == 0 and again.changed == 0, again.output
