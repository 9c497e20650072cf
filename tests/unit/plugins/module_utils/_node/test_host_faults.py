# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The faults of a drill: whether a node can be cut off, with which rules, and that they end. Kills: test_host_agent.py."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._node import host_faults

Dict = dict[str, t.Any]


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The programs that are started; nothing is cut here."""
    found: list[list[str]] = []
    monkeypatch.setattr(host_faults.subprocess, "Popen", lambda argv, **_values: found.append(argv))
    monkeypatch.setattr(host_faults.os, "geteuid", lambda: 0)
    return found


def tools(monkeypatch: pytest.MonkeyPatch, *names: str, broken: t.Collection[str] = ()) -> None:
    monkeypatch.setattr(host_faults.shutil, "which", lambda name, path: f"/sbin/{name}" if name in names else None)
    monkeypatch.setattr(
        host_faults, "_try", lambda argv: "Operation not permitted" if argv[0].split("/")[-1] in broken else ""
    )


def test_without_root_it_is_refused_by_name(monkeypatch: pytest.MonkeyPatch, commands: list[list[str]]) -> None:
    monkeypatch.setattr(host_faults.os, "geteuid", lambda: 1000)
    answer = host_faults.cut_link(5, check=False)
    assert "cannot be cut off its network: that takes root" in answer["problem"] and "ansible_become" in answer["fix"]
    assert commands == []


def test_without_a_program_or_the_right_it_is_refused(
    monkeypatch: pytest.MonkeyPatch, commands: list[list[str]]
) -> None:
    tools(monkeypatch)
    assert "neither nft nor iptables is installed" in host_faults.cut_link(5, check=True)["problem"]
    tools(monkeypatch, "nft", broken=("nft",))
    assert "Operation not permitted" in host_faults.cut_link(5, check=True)["problem"]
    assert commands == []


def test_a_check_cuts_nothing(monkeypatch: pytest.MonkeyPatch, commands: list[list[str]]) -> None:
    tools(monkeypatch, "nft")
    assert host_faults.cut_link(5, check=True) == {"at": None} and commands == []


def test_what_restores_the_link_is_started_first(monkeypatch: pytest.MonkeyPatch, commands: list[list[str]]) -> None:
    tools(monkeypatch, "nft", "iptables")
    host_faults.cut_link(30, check=False)
    restore, cut = (argv[-1] for argv in commands)
    assert restore == "sleep 31.0; /sbin/nft delete table inet muster_drill"
    assert cut.startswith("sleep 1.0; /sbin/nft 'table inet muster_drill {") and "policy drop; iif lo accept" in cut


def test_iptables_where_nft_cannot(monkeypatch: pytest.MonkeyPatch, commands: list[list[str]]) -> None:
    tools(monkeypatch, "nft", "iptables", "ip6tables", broken=("nft",))
    host_faults.cut_link(30, check=False)
    restore, cut = (argv[-1] for argv in commands)
    assert cut.count("-I INPUT ! -i lo") == 2 and "/sbin/ip6tables -w -I OUTPUT ! -o lo" in cut
    assert restore == cut.replace("sleep 1.0", "sleep 31.0").replace(" -I ", " -D ")


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("nft"), reason="needs root, ip and nft")
@pytest.mark.parametrize("make", [host_faults._nft_commands, None])
def test_the_rules_drop_all_but_loopback_and_go_again(tmp_path: pathlib.Path, make: t.Any) -> None:
    """In a network namespace of its own."""
    name = f"muster-cut-{os.getpid()}"
    program = shutil.which("nft") if make else shutil.which("iptables")
    cut, restore = make(program) if make else host_faults._iptables_commands([program])
    if subprocess.run(["ip", "netns", "add", name], check=False).returncode:
        pytest.skip("network namespaces cannot be made here")

    def inside(command: str) -> subprocess.CompletedProcess[str]:
        argv = ["ip", "netns", "exec", name, "/bin/sh", "-c", command]
        return subprocess.run(argv, capture_output=True, text=True, check=False)

    try:
        inside("ip link set lo up; ip link add v0 type dummy; ip addr add 10.9.9.1/24 dev v0; ip link set v0 up")
        assert (done := inside(cut)).returncode == 0, done.stderr
        assert inside("ping -c1 -W1 127.0.0.1").returncode in (0, 127), "loopback stays"
        sent = inside("ping -c1 -W1 10.9.9.2")
        assert sent.returncode == 127 or "not permitted" in sent.stderr + sent.stdout, sent
        assert (done := inside(restore)).returncode == 0, done.stderr
        left = inside("nft list ruleset").stdout
        assert "muster_drill" not in left, left
    finally:
        subprocess.run(["ip", "netns", "del", name], check=False)
