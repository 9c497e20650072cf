# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The cases: links as they should be and links with one fault each, and what a right verdict on them says."""

from __future__ import annotations

import dataclasses
import typing as t

from .netns import FABRIC, MANAGEMENT, Wire
from .world import Seen, Setting, kill_agent, pull_cable, stop_rank

# tbf counts Ethernet, IP and TCP headers: 1448 of 1514 bytes are payload, so 0.956 is the most that can be measured.
SHARE_GATE = 0.93
VERDICT_S = 15.0
_HANG_S = 30
# A bench that hangs is ended by its own limit, which start-up and reading the result come on top of.
_HANG_VERDICT_S = _HANG_S + VERDICT_S
Check = t.Callable[[Seen], list[str]]


@dataclasses.dataclass(frozen=True, slots=True)
class Case:
    """One case. ``check`` returns what is wrong with a verdict, nothing when it is right.

    ``within_s`` is the gate of the playbook's wall time on an idle machine, None where none is set.
    """

    name: str
    setting: Setting
    check: Check
    healthy: bool = False
    within_s: float | None = VERDICT_S

    @property
    def rate(self) -> float:
        """The shaped rate in Mbit/s of the slowest link."""
        return min(wire.fabric for wire in self.setting.wires)

    def problems(self, seen: Seen) -> list[str]:
        """Return in words why what came out is not right for this case; empty when it is."""
        found = [f"left behind: {item}" for item in seen.left]
        if not seen.island:
            return [*found, f"no verdict was written (exit code {seen.code}): {_last_error(seen)}"]
        if self.setting.fault and not seen.struck:
            found.append("the test was over before the fault could be done")
        if (seen.code == 0) != (seen.outcome in ("pass", "warn") and not self.setting.deaf):
            found.append(f"exit code {seen.code} for {seen.outcome}")
        return found + self.check(seen)

    def share(self, seen: Seen) -> float | None:
        """Return the measured part of the shaped rate."""
        return None if seen.rate_mbit is None else seen.rate_mbit / self.rate


def _last_error(seen: Seen) -> str:
    lines = [line for line in seen.output.splitlines() if line.startswith("[ERROR]")]
    return (lines or seen.output.splitlines() or ["no output"])[-1][:300]


def _healthy(seen: Seen) -> list[str]:
    found = [] if seen.outcome == "pass" else [f"{seen.outcome}: {seen.island.get('reasons')}"]
    if seen.causes:
        found.append(f"false alarm: {seen.causes}")
    if seen.interfaces != {FABRIC}:
        found.append(f"proven on {sorted(seen.interfaces)}")
    return found


def _slow_path(seen: Seen) -> list[str]:
    found = [] if seen.outcome in ("warn", "fail") else [f"{seen.outcome}, the link has half of its rate"]
    ends = [
        cause
        for cause in seen.island.get("causes", [])
        if "node-1" in cause["evidence"] and "node-2" in cause["evidence"]
    ]
    if not [cause for cause in ends if cause["code"] == "slow_path"]:
        found.append(f"the path between node-1 and node-2 is not named: {seen.causes}")
    return found


def _wrong_interface(seen: Seen) -> list[str]:
    found = [] if seen.outcome == "fail" else [f"{seen.outcome}, the traffic was on the management network"]
    if seen.interfaces != {MANAGEMENT}:
        found.append(f"proven on {sorted(seen.interfaces)}")
    lacking = [node for node in ("node-1", "node-2") if ("wrong_interface", node) not in seen.causes]
    return found + ([f"wrong_interface is not named for {lacking}: {seen.causes}"] if lacking else [])


def _wrong_address(seen: Seen) -> list[str]:
    found = [] if seen.outcome == "fail" else [f"{seen.outcome}, the declared addresses are on the management network"]
    if seen.interfaces != {MANAGEMENT}:
        found.append(f"proven on {sorted(seen.interfaces)}")
    # Whether the address or the network behind it is at fault is the user's to know: either cause leads there.
    if not {code for code, _ in seen.causes} & {"wrong_interface", "slow_path"}:
        found.append(f"no cause is named: {seen.causes}")
    return found


def _missing_rank(seen: Seen) -> list[str]:
    found = [] if seen.outcome == "fail" else [f"{seen.outcome}, rank 1 did not finish"]
    ranks = seen.island.get("ranks") or {}
    if list(ranks.get("missing") or []) != [1]:
        found.append(f"attendance says {ranks}")
    if ("ranks_missing", "node-2") not in seen.causes:
        found.append(f"ranks_missing is not named for node-2: {seen.causes}")
    return found


def _broken(seen: Seen) -> list[str]:
    return [] if seen.outcome in ("fail", "unproven") else [f"{seen.outcome}, the cable was pulled in the test"]


def _bad_node(seen: Seen) -> list[str]:
    found = [] if seen.outcome in ("warn", "fail") else [f"{seen.outcome}, one node has half of its rate"]
    return found + ([] if seen.causes == [("slow_node", "node-3")] else [f"blamed: {seen.causes}"])


def _without_one(seen: Seen) -> list[str]:
    """Two of three nodes answer: they are judged, the third is named, and it is no pass."""
    found = [] if seen.outcome == "warn" else [f"{seen.outcome}, one node does not answer: {seen.island}"]
    if list(seen.island.get("nodes", [])) != ["node-1", "node-2"]:
        found.append(f"judged: {seen.island.get('nodes')}")
    if seen.causes != [("host_unreachable", "node-3")]:
        found.append(f"named: {seen.causes}")
    told = all(word in seen.output for word in ("node-3: ", "Connection refused")) and "Traceback" not in seen.output
    found += ["the evidence drowns what a person reads"] if '"pairs"' in seen.output else []
    return found + ([] if told else ["node-3 is not told of"])


def _two(rate: float, **more: t.Any) -> Setting:
    return Setting((Wire(rate),) * 2, rate, **more)


_BOTH_NETWORKS = (Wire(500, 100),) * 2
CASES: t.Final = (
    Case("two nodes, 500 Mbit/s", _two(500), _healthy, healthy=True),
    Case("two nodes, 1 Gbit/s", _two(1000), _healthy, healthy=True),
    Case("two nodes, 2 Gbit/s", _two(2000), _healthy, healthy=True),
    Case("slow network listed first", Setting((Wire(500, 100, True),) * 2, 500), _healthy, healthy=True),
    Case("four nodes, 500 Mbit/s", Setting((Wire(500),) * 4, 500), _healthy, healthy=True, within_s=None),
    Case("link at half its rate", Setting((Wire(500), Wire(250)), 500), _slow_path),
    Case(
        "traffic forced to the slow network",
        Setting(_BOTH_NETWORKS, 500, environment={"GLOO_SOCKET_IFNAME": MANAGEMENT}),
        _wrong_interface,
        within_s=None,
    ),
    Case(
        "addresses on the slow network",
        Setting(_BOTH_NETWORKS, 500, address_on=MANAGEMENT),
        _wrong_address,
        within_s=None,
    ),
    Case("agent killed in the test", _two(500, fault=kill_agent, timeout_s=_HANG_S), _missing_rank),
    Case(
        "rank stopped in the test",
        _two(500, fault=stop_rank, timeout_s=_HANG_S),
        _missing_rank,
        within_s=_HANG_VERDICT_S,
    ),
    Case("cable pulled in the test", _two(500, fault=pull_cable, timeout_s=_HANG_S), _broken, within_s=_HANG_VERDICT_S),
    Case(
        "one node of three does not answer",
        Setting((Wire(500),) * 3, 500, deaf=("node-3",)),
        _without_one,
        within_s=None,
    ),
    Case(
        "one bad node of four",
        Setting((Wire(500), Wire(500), Wire(250), Wire(500)), 500),
        _bad_node,
        within_s=None,
    ),
)
