# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""verify_fabric on real links: namespaces joined by shaped veth pairs, each case once (needs root and torch)."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess

import pytest

from ansible_collections.muster.training.tests.lab.fabric.cases import CASES, SHARE_GATE, Case
from ansible_collections.muster.training.tests.lab.fabric.netns import (
    FABRIC,
    Net,
    NetError,
    Wire,
    inside,
    namespaces,
    unmet,
)
from ansible_collections.muster.training.tests.lab.fabric.world import Seen, World, missing

REQUIRED = os.environ.get("MUSTER_REQUIRE_LAB") == "1"
PAIRS = [{"a": "node-1", "b": "node-2", "via": FABRIC}, {"a": "node-2", "b": "node-1", "via": FABRIC}]
PASSED = {
    "outcome": "pass",
    "causes": [],
    "transport": {"pairs": PAIRS},
    "bandwidth": {"busbw_gb_s": 0.0595},
    "ranks": {"expected": 2, "seen": 2, "missing": []},
}


def need(reason: str) -> None:
    """Skip, or fail where the lab is required, when ``reason`` is not empty."""
    if reason:
        (pytest.fail if REQUIRED else pytest.skip)(reason)


def busy() -> bool:
    """Return whether others use the processors: only an idle machine moves 2 Gbit/s through gloo."""
    return os.getloadavg()[0] > (os.cpu_count() or 1) / 2


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_verdict_is_right(case: Case, tmp_path: pathlib.Path) -> None:
    need(missing())
    idle = not busy()
    seen = World(tmp_path / "case", case.setting).verify()
    assert case.problems(seen) == [], seen.output[-3000:]
    share = case.share(seen)
    if case.healthy and (idle or case.rate <= 1000):
        assert share is not None and SHARE_GATE <= share <= 1, share


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case_refuses_the_wrong_verdict(case: Case) -> None:
    passed = Seen(0, "", 10.0, PASSED, True, ())
    failed = Seen(2, "", 10.0, {**PASSED, "outcome": "fail"}, True, ())
    unwritten = Seen(2, "[ERROR]: broken", 10.0, {}, True, ())
    assert bool(case.problems(passed)) is not case.healthy
    assert case.healthy is False or case.problems(failed)
    assert any("no verdict" in text and "broken" in text for text in case.problems(unwritten))
    assert case.problems(Seen(0, "", 10.0, PASSED, True, ("process 1",)))[0] == "left behind: process 1"
    assert case.problems(Seen(1, "", 10.0, PASSED, True, ()))


def test_links_have_their_rate_and_leave_nothing() -> None:
    need(unmet())
    net = Net((Wire(200, 50), Wire(100)))
    net.up()
    mine = [name for name in namespaces() if name.startswith(net.id)]
    assert len(mine) == 3
    assert net.sent("node-2") >= 0
    resolver = pathlib.Path("/etc/resolv.conf").read_bytes()
    write = ["sh", "-c", "echo nameserver 10.78.0.1 > /etc/resolv.conf"]
    subprocess.run(["ip", "netns", "exec", net.namespace("node-1"), *write], check=True)
    assert pathlib.Path("/etc/resolv.conf").read_bytes() == resolver
    sleeper = subprocess.Popen(["ip", "netns", "exec", net.namespace("node-1"), "sleep", "60"])
    while not inside(net.namespace("node-1")):
        assert sleeper.poll() is None
    shaped = subprocess.check_output(["tc", "-n", net.namespace("node-2"), "qdisc", "show", "dev", FABRIC], text=True)
    assert " tbf " in shaped and "rate 100Mbit" in shaped
    assert net.down() == []
    assert sleeper.wait() == -signal.SIGKILL
    assert [name for name in namespaces() if name.startswith(net.id)] == []
    assert not list(pathlib.Path("/etc").glob(f"netns/{net.id}*"))


def test_half_made_links_are_removed() -> None:
    need(unmet())
    net = Net((Wire(200), Wire(0)))
    with pytest.raises(NetError, match="tc .* failed"):
        net.up()
    assert [name for name in namespaces() if name.startswith(net.id)] == []
