# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The node's side of the mesh: the key's file, what is recorded before it is done. A real tailscaled is the lab's."""

from __future__ import annotations

import json
import pathlib
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._node import files, host_agent, host_mesh, placed_files
from ansible_collections.muster.training.tests.support.carried import carry

KEY = "tskey-auth-geheim"
# Stands for tailscale: it notes its arguments and what the key's file holds, and fails when it is told to.
TAILSCALE = """#!/bin/sh
folder={folder}
echo "$*" >> $folder/calls
case "$1" in
  status) cat $folder/status ;;
  debug) cat $folder/prefs ;;
  up)
    for word in "$@"; do case "$word" in --auth-key=file:*) path=${{word#*file:}}; cat $path > $folder/key
      stat -c %a $path > $folder/mode ;; esac; done
    case "$*" in *--hostname=*) ;; *) test ! -e $folder/tried || {{
      echo "Error: changing settings via 'tailscale up' requires mentioning all" >&2
      echo "  tailscale up $(echo "$*" | cut -d' ' -f2-) --hostname='its name'" >&2; exit 1; }} ;; esac
    test ! -e $folder/refuses || {{ echo "backend error: failed to parse auth-key: $(cat $folder/key)" >&2; exit 1; }} ;;
esac
"""


@pytest.fixture
def node(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """A node below a folder, with the program."""
    folder = tmp_path / "tool"
    folder.mkdir()
    program = folder / "tailscale"
    program.write_text(TAILSCALE.format(folder=folder))
    program.chmod(0o755)
    (folder / "status").write_text(json.dumps({"BackendState": "NeedsLogin", "Health": ["not logged in"]}))
    (folder / "prefs").write_text(json.dumps({"Hostname": ""}))
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.setattr(host_mesh.tempfile, "tempdir", str(tmp_path))
    real = placed_files.place_of
    for module in (host_mesh, placed_files):
        # The root of a real node is this test's folder.
        monkeypatch.setattr(
            module, "place_of", lambda path, root="/": real(path, str(tmp_path) if root == "/" else root)
        )
    monkeypatch.setattr(host_mesh, "_RUN", str(tmp_path))
    return folder


def ask(step: str, **values: t.Any) -> dict[str, t.Any]:
    """Ask as the agent is asked."""
    return host_agent.answer_request({"op": "mesh", "step": step, "node": "n", **values})


def record(node: pathlib.Path) -> t.Any:
    return files.read_json(node.parent / host_mesh.RECORD)


def calls(node: pathlib.Path) -> list[str]:
    return (node / "calls").read_text().splitlines()


def test_what_is_there_is_read_and_nothing_is_written(node: pathlib.Path) -> None:
    found = ask("look", files=[])
    assert (found["backend"], found["prefs"], found["record"]) == ("NeedsLogin", {"Hostname": ""}, None)
    assert found["program"] == str(node / "tailscale") and found["active"] is True
    (node / "status").write_text("")
    assert ask("look", files=[])["active"] is False
    assert record(node) is None


def test_the_key_is_a_file_for_its_owner_and_for_as_long_as_it_is_read(node: pathlib.Path) -> None:
    before = sorted(item.name for item in node.parent.iterdir())
    wanted = {"login_server": "https://hs.example.com", "wait_s": 5, "flags": ["hostname=gpu-1", "ssh=true"]}
    assert ask("join", key=KEY, **wanted) == {}
    assert calls(node)[-1].endswith("--hostname=gpu-1 --ssh=true")
    assert (node / "key").read_text() == KEY and (node / "mode").read_text() == "600\n"
    assert KEY not in "".join(calls(node)) and "--login-server=https://hs.example.com" in calls(node)[-1]
    assert sorted(item.name for item in node.parent.iterdir()) == [*before, "var"]
    assert record(node)["joined"] == "https://hs.example.com"


def test_a_refused_key_is_told_without_the_key_and_tailscale_stops_trying(node: pathlib.Path) -> None:
    (node / "refuses").touch()
    problem = ask("join", key=KEY, login_server="https://hs.example.com", wait_s=5)["problem"]
    assert problem.startswith("the tailnet refused the key") and KEY not in problem and "not logged in" in problem
    assert calls(node)[-1] == "down"
    # It may have joined all the same: a removal leaves the tailnet.
    assert record(node)["joined"] == "https://hs.example.com"


def test_a_node_that_tried_before_repeats_the_settings_that_tailscale_lists(node: pathlib.Path) -> None:
    (node / "tried").touch()
    assert ask("join", key=KEY, login_server="https://hs.example.com", wait_s=5) == {}
    assert calls(node)[-1].endswith("--timeout=5s --hostname=its name")


def test_the_first_former_value_of_a_preference_is_kept(node: pathlib.Path) -> None:
    ask("set", flags=["hostname=a"], former={"Hostname": "owners"})
    ask("set", flags=["hostname=b", "ssh=true"], former={"Hostname": "a", "RunSSH": False})
    assert record(node)["prefs"] == {"Hostname": "owners", "RunSSH": False}
    assert calls(node) == ["set --hostname=a", "set --hostname=b --ssh=true"]


def test_a_removal_touches_only_what_was_made(node: pathlib.Path) -> None:
    assert ask("remove", flags=[]) == {"removed": False}
    ask("set", flags=["hostname=a"], former={"Hostname": "owners"})
    assert ask("remove", flags=["hostname=owners"]) == {"removed": True}
    assert calls(node)[-1] == "set --hostname=owners" and "logout" not in calls(node)
    assert not (node.parent / "var").exists()


def test_what_was_installed_is_recorded_and_goes_with_its_state(node: pathlib.Path) -> None:
    root = node.parent / "root"
    unit = {"path": "/etc/systemd/system/tailscaled.service", "mode": 0o644, "text": "[Unit]\n"}
    sent = carry("/etc/systemd/system/archive", b"x")
    ask("bring", root=str(root), **sent, begin={"paths": [unit["path"]]})
    assert json.loads((root / host_mesh.RECORD).read_text())["files"] == {unit["path"]: None}
    ask("discard", root=str(root), paths=["/etc/systemd/system/archive"])
    ask("apply", root=str(root), files=[unit], release={"version": "1.0", "sha256": "ab"})
    wanted = [{"path": unit["path"]}]
    assert ask("look", root=str(root), files=wanted)["intact"] is True
    (root / "etc/systemd/system/tailscaled.service").write_text("[Unit]\nchanged=1\n")
    assert ask("look", root=str(root), files=wanted)["intact"] is False
    (root / "var/lib/tailscale").mkdir(parents=True)
    assert ask("remove", root=str(root), flags=[]) == {"removed": True}
    assert not root.exists() or list(root.rglob("*")) == []


def test_the_path_to_other_machines_is_read_where_they_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[t.Sequence[str]] = []

    def read(peers: t.Sequence[str]) -> dict[str, str]:
        asked.append(peers)
        return {"100.64.0.2": "relayed", "100.64.0.3": "direct"} if peers else {}

    monkeypatch.setattr(host_mesh.host_reachability, "read_tailscale_paths", read)
    assert ask("look", peers=["gpu-2"])["path"] == "direct" and ask("look")["path"] is None
    assert asked == [["gpu-2"], []]


def test_the_names_of_services_that_a_machine_has_are_read_from_their_block(node: pathlib.Path) -> None:
    assert ask("look", files=[])["names"] == []
    place = node.parent / "etc" / "hosts"
    place.parent.mkdir()
    marker = "of names in the mesh (muster.training)"
    ours = f"# BEGIN {marker}\n100.64.0.1 mlflow.mesh\n100.64.0.2 loki.mesh\n# END {marker}\n"
    place.write_text(f"127.0.0.1 localhost\n{ours}192.0.2.1 other.mesh\n")
    assert ask("look", files=[])["names"] == ["mlflow.mesh", "loki.mesh"]
