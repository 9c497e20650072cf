# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the last fabric verdict means for a job: every outcome and lane, no verdict, an old and a damaged one."""

from __future__ import annotations

import typing as t

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.module_utils._model import fabric_gate
from ansible_collections.muster.training.plugins.module_utils._model.errors import RefusedError
from ansible_collections.muster.training.plugins.module_utils._model.job import Job, parse_job

NOW = 1_800_000_000.0
FRESH, OLD = "2027-01-15T07:00:00.000+00:00", "2026-12-01T00:00:00+00:00"
HOSTS = ("a", "b")


def job(allow: bool = False, **more: t.Any) -> Job:
    return parse_job({"name": "x", "nodes": 2, "script": "/t.py", "placement": {"allow_slow_network": allow}, **more})


def verdict(outcome: str = "pass", lane: str | None = "C", **changes: t.Any) -> dict[str, t.Any]:
    base = {"island": "lan", "outcome": outcome, "lane": lane, "nodes": ["a", "b"], "started_at": FRESH}
    return {**base, "reasons": [] if outcome == "pass" else ["bandwidth: 1 of 2 GB/s"], **changes}


def judge(verdicts: t.Any, allow: bool = False, hosts: t.Sequence[str] = HOSTS) -> fabric_gate.FabricGate:
    return fabric_gate.judge_fabric(job(allow), hosts, verdicts, NOW)


def test_a_pass_says_nothing() -> None:
    found = judge([verdict(bandwidth={"busbw_gb_s": 1.25})])
    assert found.warnings == () and found.bandwidth_gb_s == 1.25


@pytest.mark.parametrize("outcome", ["warn", "unproven"])
def test_warn_and_unproven_run_with_the_reason(outcome: str) -> None:
    found = judge([verdict(outcome)])
    assert found.warnings == (f"fabric of island lan: {outcome} (bandwidth: 1 of 2 GB/s)",)
    assert found.verdict is not None


def test_a_failed_fabric_is_refused_with_its_reason_unless_that_is_known() -> None:
    with pytest.raises(RefusedError, match=r"island lan failed verification: bandwidth: 1 of 2 GB/s.*verify_fabric"):
        judge([verdict("fail")])
    assert "fail" in judge([verdict("fail")], allow=True).warnings[0]
    with pytest.raises(RefusedError, match="it failed verification"):
        judge([verdict("fail", reasons=[])])


@pytest.mark.parametrize("outcome", ["pass", "warn", "unproven", "fail"])
@pytest.mark.parametrize("allow", [False, True])
def test_a_relay_is_always_refused(outcome: str, allow: bool) -> None:
    with pytest.raises(RefusedError, match="relay only"):
        judge([verdict(outcome, "E")], allow)


def test_a_mesh_needs_to_be_allowed() -> None:
    with pytest.raises(RefusedError, match="lane D.*allow_slow_network"):
        judge([verdict(lane="D")])
    assert judge([verdict(lane="D")], allow=True).warnings == ()


@pytest.mark.parametrize("verdicts", [[], [verdict(nodes=["x", "y"])]])
def test_no_verdict_is_a_warning(verdicts: list[t.Any]) -> None:
    found = judge(verdicts)
    assert found.verdict is None and found.bandwidth_gb_s is None
    assert found.warnings == ("the network of these nodes was never verified. Run the verify_fabric playbook",)


def test_a_member_of_a_team_is_not_told_to_verify_by_themselves() -> None:
    pods = job(image="i:1", placement={"backend": "kubernetes"})
    (warning,) = fabric_gate.judge_fabric(pods, HOSTS, []).warnings
    assert warning.endswith("Run the verify_fabric playbook as an administrator of the cluster, or have it run")


def test_a_node_that_joined_later_is_named() -> None:
    found = judge([verdict()], hosts=("a", "b", "c"))
    assert found.verdict is None and found.warnings[0].startswith("the network of c was never verified")


def test_several_islands_are_refused() -> None:
    both = [verdict(nodes=["a"], island="one"), verdict(nodes=["b"], island="two")]
    with pytest.raises(RefusedError, match=r"different islands \(one, two\)"):
        judge(both)
    assert judge(both, allow=True).warnings == ("the nodes are on different islands: one, two",)


@pytest.mark.parametrize(
    ("verdicts", "said"),
    [
        ([verdict(nodes=["a"], island="lan"), verdict(nodes=["b"], island="cloud")], "an assumed 1 Gb/s"),
        ([verdict(lane="D", bandwidth={"busbw_gb_s": 0.05})], "the measured 0.4 Gb/s"),
    ],
    ids=["mesh and LAN", "mesh"],
)
def test_a_gang_over_a_mesh_is_refused_with_its_seconds_per_step_and_three_ways_out(
    verdicts: list[t.Any], said: str
) -> None:
    large = job(batch={"parameters": 1_000_000_000, "bytes_per_gradient": 2})
    with pytest.raises(RefusedError) as caught:
        fabric_gate.judge_fabric(large, HOSTS, verdicts)
    seconds = {"an": 16, "th": 40}[said[:2]]
    assert f"about {seconds} s per step at {said}" in str(caught.value)
    ways = (
        "Choose hosts of one",
        "train on each island with a job of its own (placement.island)",
        "set job.placement.allow_slow_network: true",
    )
    assert all(way in str(caught.value) for way in ways)


def test_without_a_size_of_the_model_the_option_is_named() -> None:
    with pytest.raises(RefusedError, match=r"set job\.batch\.parameters to see"):
        judge([verdict(lane="D")])


@pytest.mark.parametrize("started_at", [OLD, OLD.removesuffix("+00:00")])
def test_an_old_verdict_is_stale(started_at: str) -> None:
    assert judge([verdict(started_at=started_at)]).warnings == (
        "fabric of island lan was verified 45 days ago. Run the verify_fabric playbook",
    )


@pytest.mark.parametrize("started_at", [FRESH, None, "yesterday", 7])
def test_a_fresh_one_or_one_without_a_time_is_not(started_at: t.Any) -> None:
    assert judge([verdict(started_at=started_at)]).warnings == ()


def test_the_age_is_judged_by_the_clock_by_default() -> None:
    assert fabric_gate.judge_fabric(job(), HOSTS, [verdict(started_at="2000-01-01T00:00:00+00:00")]).warnings != ()


def test_a_verdict_without_a_lane_has_none() -> None:
    found = judge([{"island": "lan", "outcome": "pass", "nodes": ["a", "b"]}])
    assert found.verdict is not None and found.verdict["lane"] is None and found.warnings == ()


def test_drift_is_told() -> None:
    assert judge([verdict(drift=["a–b: 0.5 GB/s, 1.0 before"])]).warnings == (
        "fabric of island lan has changed: a–b: 0.5 GB/s, 1.0 before",
    )


def test_a_fabric_that_became_better_is_no_warning() -> None:
    assert judge([verdict(drift=["outcome: pass, fail before"])]).warnings == ()


def test_one_host_needs_no_network() -> None:
    assert judge([verdict("fail", "E")], hosts=("a",)) == fabric_gate.FabricGate(None, ())


@pytest.mark.parametrize("broken", ["text", {"a": 1}, [1], [{"island": "lan"}], [{**verdict(), "outcome": "great"}]])
def test_what_is_no_verdict_is_left_out_and_told(broken: t.Any) -> None:
    found = judge(broken)
    assert found.verdict is None and "damaged" in found.warnings[0] and "never verified" in found.warnings[1]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@given(JSON, st.sampled_from(sorted(verdict())))
def test_no_value_breaks_the_gate(value: t.Any, key: str) -> None:
    for verdicts in (value, [value], [{**verdict(), key: value}]):
        try:
            assert isinstance(judge(verdicts).bandwidth_gb_s, int | float | None)
        except RefusedError as exc:
            assert "\n" not in str(exc)
