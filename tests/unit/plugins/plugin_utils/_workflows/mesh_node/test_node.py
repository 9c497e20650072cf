# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The order of requests by which a machine joins and leaves, against a machine that answers as tailscale does."""

from __future__ import annotations

import pathlib
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError, NodeError, RefusedError
from ansible_collections.muster.training.plugins.plugin_utils._workflows.mesh_node import node

KEY = "tskey-auth-geheim"
DEFAULTS: dict[str, t.Any] = {"state": "present", "userspace": False, "port": 41641, "wait_s": 60}


class Machine:
    """A machine with tailscale's state; it keeps the requests."""

    name = "gpu-1"

    def __init__(self, **state: t.Any) -> None:
        self.state: dict[str, t.Any] = {"architecture": "x86_64", "root": True, "systemd": True, "tun": True, **state}
        self.steps: list[str] = []
        self.requests: list[dict[str, t.Any]] = []

    def call(self, op: str, *, step: str, **values: t.Any) -> dict[str, t.Any]:
        assert op == "mesh"
        self.requests.append({"step": step, **values})
        if step == "look":
            return self.state
        self.steps.append(step)
        if step == "bring":
            assert b"".join(values["body"]).endswith(b"\n")
            return {"digests": {}}
        if step == "start":
            self.state |= {"program": "/usr/local/bin/tailscale", "active": True, "backend": "NeedsLogin"}
        if step == "join":
            self.state |= {"backend": "Running", "addresses": ["100.64.0.1"], "name": "gpu-1.mesh.internal"}
        return {}


@pytest.fixture
def release(tmp_path: pathlib.Path) -> pathlib.Path:
    (tmp_path / "tailscale_1.102.0_amd64.tgz").write_bytes(b"")
    (tmp_path / "key").write_text(KEY + "\n")
    return tmp_path


def ask(
    machine: Machine, base: pathlib.Path, check: bool = False, address: str = "192.0.2.1", **options: t.Any
) -> t.Any:
    values = {**DEFAULTS, "source": str(base), **options}
    return node.run(values, t.cast(t.Any, machine), address, [], base, check)


def test_a_bare_machine_joins_and_the_key_is_in_one_request_only(release: pathlib.Path) -> None:
    machine = Machine()
    result = ask(machine, release, auth_key_file="key")
    assert machine.steps == ["bring", "apply", "start", "set", "join"]
    assert result["changed"] is True and result["joined"] is True and result["addresses"] == ["100.64.0.1"]
    assert [request["step"] for request in machine.requests if KEY in str(request)] == ["join"]
    assert KEY not in str(result)
    # The name that it joins with: set, and again with the join, which forgets what was set on a new machine.
    assert [item["flags"] for item in machine.requests if item["step"] in ("set", "join")] == [["hostname=gpu-1"]] * 2


def test_a_check_sends_no_request_that_changes_something(release: pathlib.Path) -> None:
    machine = Machine()
    result = ask(machine, release, check=True)
    assert machine.steps == [] and result["changed"] is True and result["joined"] is False
    assert not (release / "muster-downloads.lock.json").exists()


def test_a_second_run_asks_once_and_changes_nothing(release: pathlib.Path) -> None:
    machine = Machine(program="/usr/bin/tailscale", active=True, backend="Running", prefs={"Hostname": "spark"})
    assert ask(machine, release)["changed"] is False
    assert len(machine.requests) == 1


def test_the_path_to_others_is_asked_for_with_the_same_request(release: pathlib.Path) -> None:
    machine = Machine(program="/usr/bin/tailscale", active=True, backend="Running", path="relayed")
    assert ask(machine, release, peers=["gpu-2", "100.64.0.3"])["path"] == "relayed"
    assert [request["peers"] for request in machine.requests] == [["gpu-2", "100.64.0.3"]]
    with pytest.raises(InputError, match="peers"):
        ask(machine, release, peers=[{}])


def test_a_changed_program_is_replaced_before_anything_else_is_judged(release: pathlib.Path) -> None:
    record = {"files": {"/usr/local/bin/tailscale": {}}, "release": {"version": "1.102.0"}}
    machine = Machine(program="/usr/local/bin/tailscale", record=record, intact=False)
    apply = machine.call

    def call(op: str, *, step: str, **values: t.Any) -> dict[str, t.Any]:
        if step == "apply":
            machine.state |= {"intact": True, "active": True, "backend": "Running"}
        return apply(op, step=step, **values)

    machine.call = call  # type: ignore[method-assign]
    assert ask(machine, release, check=True)["steps"] == ["install"] and machine.steps == []
    result = ask(machine, release)
    assert (result["changed"], result["steps"], result["joined"]) == (True, ["install"], True)
    assert machine.steps == ["bring", "apply"]


def test_what_cannot_be_done_is_said_before_anything_is_done(release: pathlib.Path) -> None:
    machine = Machine()
    with pytest.raises(InputError, match="gpu-1 is not in the mesh and has no key"):
        ask(machine, release)
    with pytest.raises(NodeError, match="has no /dev/net/tun"):
        ask(Machine(tun=False), release, auth_key_file="key")
    for options, said in (
        ({"auth_key_file": "none"}, "auth_key_file: .*none cannot be read"),
        ({"login_server": "hs.example.com"}, "login_server: 'hs.example.com' is not a URL"),
    ):
        with pytest.raises(InputError, match=said):
            ask(machine, release, **options)
    (release / "key").write_text("\n")
    with pytest.raises(InputError, match="is empty"):
        ask(machine, release, auth_key_file="key")
    assert machine.steps == []


RECORD = {"joined": "https://hs.example.com", "files": {"/usr/local/bin/tailscale": {}}, "prefs": {"Hostname": ""}}


def test_a_machine_that_joined_leaves(release: pathlib.Path) -> None:
    machine = Machine(backend="Running", addresses=["100.64.0.1"], name="gpu-1.mesh.internal", record=RECORD)
    assert ask(machine, release, check=True, state="absent")["steps"] == ["leave", "uninstall", "set --hostname="]
    assert machine.steps == []
    assert ask(machine, release, state="absent")["changed"] is True
    assert machine.steps == ["remove"] and machine.requests[-1]["flags"] == ["hostname="]


@pytest.mark.parametrize("address", ["100.64.0.1", "gpu-1.mesh.internal", "gpu-1"])
def test_the_connection_is_not_cut_under_our_own_feet(release: pathlib.Path, address: str) -> None:
    machine = Machine(backend="Running", addresses=["100.64.0.1"], name="gpu-1.mesh.internal", record=RECORD)
    with pytest.raises(RefusedError, match="runs over the mesh"):
        ask(machine, release, address=address, state="absent")
    assert machine.steps == []


def test_a_machine_that_was_in_the_mesh_before_stays(release: pathlib.Path) -> None:
    machine = Machine(backend="Running", addresses=["100.64.0.1"])
    assert ask(machine, release, state="absent")["changed"] is False
    restored = Machine(backend="Running", addresses=["100.64.0.1"], record={"files": {}, "prefs": {"CorpDNS": True}})
    result = ask(restored, release, state="absent", address="100.64.0.1")
    assert result["steps"] == ["set --accept-dns=true"] and result["joined"] is True
