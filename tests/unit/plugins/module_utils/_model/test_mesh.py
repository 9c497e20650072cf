# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What differs between a machine and the mesh that it shall be in, and which machines are refused."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model import mesh
from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError, NodeError

BARE = {"architecture": "x86_64", "root": True, "systemd": True, "tun": True}
IN_MESH = {
    **BARE,
    "program": "/usr/bin/tailscale",
    "active": True,
    "backend": "Running",
    "prefs": {
        "ControlURL": "https://hs.example.com",
        "Hostname": "spark",
        "CorpDNS": True,
        "RouteAll": False,
        "RunSSH": False,
        "AdvertiseRoutes": None,
    },
    "addresses": ["100.64.0.1"],
}
OURS = {**IN_MESH, "record": {"files": {"/usr/local/bin/tailscale": {}}, "release": {"version": "1.0"}}, "intact": True}


def plan(values: dict[str, t.Any], settings: mesh.MeshSettings | None = None) -> mesh.MeshPlan:
    return mesh.make_plan(mesh.MeshState.from_dict(values), settings or mesh.MeshSettings(), "1.0")


def test_a_bare_machine_gets_all_steps_in_their_order() -> None:
    found = plan(BARE, mesh.MeshSettings(hostname="gpu-1", accept_dns=False))
    assert found.summary() == ["install", "start", "join", "set --hostname=gpu-1", "set --accept-dns=false"]


def test_a_machine_that_its_owner_has_brought_into_the_mesh_is_left_as_it_is() -> None:
    assert not plan(IN_MESH).has_changes
    assert not plan(IN_MESH, mesh.MeshSettings(login_server="https://hs.example.com/", accept_dns=True)).has_changes
    # Its program is not ours: its version is the owner's matter.
    assert not mesh.make_plan(mesh.MeshState.from_dict(IN_MESH), mesh.MeshSettings(), "2.0").install


@pytest.mark.parametrize(
    ("settings", "steps"),
    [
        (mesh.MeshSettings(hostname="other"), ["set --hostname=other"]),
        (mesh.MeshSettings(accept_routes=False, ssh=False), []),
        (
            mesh.MeshSettings(advertise_routes=("10.1.0.0/16", "10.0.0.0/16")),
            ["set --advertise-routes=10.0.0.0/16,10.1.0.0/16"],
        ),
        (mesh.MeshSettings(advertise_routes=()), []),
    ],
)
def test_only_preferences_that_differ_are_set(settings: mesh.MeshSettings, steps: list[str]) -> None:
    assert plan(IN_MESH, settings).summary() == steps


def test_former_values_become_options_again() -> None:
    assert mesh.to_flags({"Hostname": "", "AdvertiseRoutes": None, "RunSSH": True, "Unknown": 1}) == [
        "hostname=", "advertise-routes=", "ssh=true",
    ]  # fmt: skip


def test_what_was_installed_is_installed_again_when_it_was_changed_or_another_version_is_asked_for() -> None:
    assert not plan(OURS).has_changes
    assert plan({**OURS, "intact": False}).summary() == ["install"]
    assert mesh.make_plan(mesh.MeshState.from_dict(OURS), mesh.MeshSettings(), "1.1").summary() == ["install"]


def test_a_disconnected_machine_is_connected_and_not_joined_again() -> None:
    assert plan({**IN_MESH, "backend": "Stopped"}).summary() == ["connect"]
    assert plan({**IN_MESH, "backend": "NeedsLogin"}).summary() == ["join"]


@pytest.mark.parametrize(
    ("values", "settings", "said"),
    [
        ({**BARE, "root": False}, {}, "gpu-1: is not managed as root"),
        ({**BARE, "systemd": False}, {}, "gpu-1: does not run systemd"),
        ({**BARE, "tun": False}, {}, "gpu-1: has no /dev/net/tun"),
        (
            IN_MESH,
            {"login_server": "https://other.example.com"},
            "gpu-1: is in the tailnet of https://hs.example.com, not",
        ),
    ],
)
def test_a_machine_that_cannot_join_is_refused(values: dict[str, t.Any], settings: dict[str, t.Any], said: str) -> None:
    state, asked = mesh.MeshState.from_dict(values), mesh.MeshSettings(**settings)
    with pytest.raises(NodeError, match=said):
        mesh.refuse_machine("gpu-1", state, asked, mesh.make_plan(state, asked, "1.0"))


def test_a_container_without_a_tunnel_joins_for_control_when_asked() -> None:
    state, asked = mesh.MeshState.from_dict({**BARE, "tun": False}), mesh.MeshSettings(userspace=True)
    mesh.refuse_machine("gpu-1", state, asked, mesh.make_plan(state, asked, "1.0"))


def test_joining_needs_a_key() -> None:
    with pytest.raises(InputError, match="auth_key_file: gpu-1 is not in the mesh"):
        mesh.require_key("gpu-1", plan(BARE), has_key=False)
    mesh.require_key("gpu-1", plan(BARE), has_key=True)
    mesh.require_key("gpu-1", plan(IN_MESH), has_key=False)


def test_architectures_without_a_release_are_refused() -> None:
    assert mesh.architecture_of("spark", mesh.MeshState.from_dict({"architecture": "aarch64"})) == "arm64"
    with pytest.raises(NodeError, match="is a riscv64 machine"):
        mesh.architecture_of("n", mesh.MeshState.from_dict({"architecture": "riscv64"}))
