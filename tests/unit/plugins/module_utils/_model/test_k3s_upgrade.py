# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""In which order machines get another K3s, and what is refused before anything begins."""

from __future__ import annotations

import dataclasses
import typing as t

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError, RefusedError
from ansible_collections.muster.training.plugins.module_utils._model.k3s import K3sMember
from ansible_collections.muster.training.plugins.module_utils._model.k3s_upgrade import (
    UpgradePlan,
    UpgradeState,
    describe_controllers,
    is_stale,
    plan_upgrade,
)

OLD, NEW, NEXT = "v1.34.10+k3s1", "v1.34.11+k3s1", "v1.35.1+k3s1"
CORDONED = "it is not ready, or cordoned"
FREE = {"free_bytes": 20 << 30}


def machine(host: str, current: str = OLD, version: str = NEW, active: bool = True) -> K3sMember:
    """Return a machine; the name of a server begins with s."""
    role = "server" if host.startswith("s") else "agent"
    return K3sMember(host, role, host, machine=FREE, current=current, version=version, active=active)


def plan(
    members: t.Sequence[K3sMember],
    limit: str = "1",
    chosen: t.Collection[str] | None = None,
    **states: UpgradeState,
) -> UpgradePlan:
    known = {item.host: states.get(item.host, UpgradeState()) for item in members}
    return plan_upgrade(members, known, [item.host for item in members] if chosen is None else chosen, limit)


def cluster(*hosts: str, **values: t.Any) -> list[K3sMember]:
    return [machine(host, **values) for host in hosts]


def test_servers_are_first_one_in_a_wave_and_agents_follow_as_many_as_may() -> None:
    members = cluster("a1", "a2", "s1", "a3", "s2", "s3")
    assert plan(members).waves == (("s1",), ("s2",), ("s3",), ("a1",), ("a2",), ("a3",))
    assert plan(members, "2").waves[3:] == (("a1", "a2"), ("a3",))
    assert plan(members, "70%").waves[3:] == (("a1", "a2"), ("a3",))


def test_on_the_way_back_agents_are_first() -> None:
    assert plan(cluster("s1", "a1", current=NEXT, version=NEW)).waves == (("a1",), ("s1",))


def test_machines_that_have_the_version_are_left_alone() -> None:
    done = cluster("s1", "a1", current=NEW)
    assert plan(done).waves == () and plan(done).table == ("K3s of all machines is as it should be",)
    assert plan([*done, machine("a2")]).waves == (("a2",),)
    assert plan(cluster("s1", "a1", "a2"), chosen=["s1", "a2"]).waves == (("s1",), ("a2",))


def test_what_an_earlier_upgrade_began_is_taken_first_though_its_binary_is_new() -> None:
    members = [machine("s1"), machine("s2", current=NEW), machine("s3"), *cluster("a1", "a2"), machine("a3", NEW)]
    begun = UpgradeState(begun=True, closed=CORDONED)
    assert plan(members, s2=begun, a3=begun).waves == (("s2",), ("s1",), ("s3",), ("a3",), ("a1",), ("a2",))


def test_a_server_that_was_begun_and_does_not_run_is_before_the_others() -> None:
    members = [machine("s1"), machine("s2", NEW, active=False), machine("s3")]
    assert plan(members, s2=UpgradeState(begun=True)).waves == (("s2",), ("s1",), ("s3",))


def test_a_kubelet_of_another_k3s_is_not_yet_changed_and_one_of_kubernetes_says_nothing() -> None:
    new = machine("a1", NEW)
    assert is_stale(new, UpgradeState(kubelet=OLD)) and not is_stale(new, UpgradeState(kubelet=NEW))
    assert not is_stale(new, UpgradeState(kubelet="v1.34.1")) and is_stale(machine("a1"), UpgradeState())


def test_the_waves_are_said_with_versions_and_runs() -> None:
    said = plan(cluster("s1", "a1"), a1=UpgradeState(runs=("llm-1", "llm-2"), begun=True)).table
    assert said == (
        "wave 1 of 2 (at most 1 agents unavailable): s1",
        f"  s1 (server): K3s {OLD} -> {NEW}; no run on it",
        "wave 2 of 2 (at most 1 agents unavailable): a1",
        f"  a1 (agent): K3s {OLD} -> {NEW}, begun by an earlier upgrade; runs on it: llm-1, llm-2",
    )


@pytest.mark.parametrize(
    ("image", "said"),
    [
        ("registry.example.com/jobset/jobset:v0.10.1", []),
        ("registry.example.com:5000/jobset:v0.10.1@sha256:abc", []),
        ("registry.example.com/jobset:v0.9.0", ["jobset: v0.9.0, and v0.10.1 is pinned: the playbook cluster applies it"]),
        ("jobset@sha256:abc", ["jobset: its version is not known, no image of jobset-controller-manager has it as its tag"]),
        ("localhost/jobset:lab", ["jobset: its version is not known, no image of jobset-controller-manager has it as its tag"]),
    ],
)  # fmt: skip
def test_a_controller_that_is_not_of_the_pinned_version_is_said(image: str, said: list[str]) -> None:
    pins = {"jobset": "v0.10.1", "kueue": "v0.14.0"}
    assert describe_controllers({"jobset-controller-manager": [image], "web": ["web:v1.0.0"]}, pins) == said


def poor(host: str) -> K3sMember:
    return dataclasses.replace(machine(host), machine={"free_bytes": 1 << 30})


@pytest.mark.parametrize(
    ("members", "states", "said"),
    [
        ([machine("s1"), machine("a1", current="")], {}, "a1: K3s is not installed on it.*playbook cluster"),
        ([machine("s1"), poor("a1")], {"a1": UpgradeState(kept_bytes=70 << 20)}, r"a1: /var/lib/rancher has 1.0 GiB.*1.1"),
        ([poor("s1")], {"s1": UpgradeState(kept_bytes=3 << 30)}, "s1: .*its datastore and the new K3s need 4.0 GiB"),
        (
            [machine("s1"), machine("s2", active=False), machine("s3")],
            {},
            "s2: K3s does not run on this server, and with another one down the rest of etcd has no majority.*Start it",
        ),
        (
            [machine("s1"), machine("s2", NEW, active=False), machine("s3")],
            {},
            "s2: K3s does not run on this server",
        ),
        (
            [machine("s1", active=False), machine("s2", active=False), machine("s3")],
            {"s1": UpgradeState(begun=True), "s2": UpgradeState(begun=True)},
            "s1, s2: K3s does not run on these servers",
        ),
        (
            [machine("s1", version=NEXT), machine("a1", "v1.31.9+k3s1", NEXT)],
            {},
            "a1 has K3s v1.31.9.k3s1, which is too old for its server s1 with v1.35.1.*agents to v1.34.10.k3s1 first",
        ),
        (cluster("s1", "a1", "a2"), {"a1": UpgradeState(closed=CORDONED)}, "a1 .it is not ready, or cordoned"),
    ],
)  # fmt: skip
def test_what_cannot_be_upgraded_is_refused_by_name(
    members: list[K3sMember], states: dict[str, t.Any], said: str
) -> None:
    with pytest.raises(RefusedError, match=said):
        plan(members, chosen=[item.host for item in members if item.host != "a1" or len(members) < 3], **states)


@pytest.mark.parametrize("limit", ["0", "-1", "half", "101%", ""])
def test_a_limit_that_is_none_is_refused(limit: str) -> None:
    with pytest.raises(InputError, match="max_unavailable"):
        plan(cluster("s1", "a1"), limit)


def test_with_nothing_to_do_nothing_is_refused() -> None:
    members = [machine("s1", NEW), machine("s2", NEW, active=False), machine("s3", NEW)]
    assert plan(members).waves == ()


@given(
    st.integers(1, 5),
    st.lists(st.tuples(st.booleans(), st.booleans()), max_size=8),
    st.integers(1, 4),
    st.data(),
)
def test_each_machine_once_never_two_servers_never_too_many_agents(
    count: int, rows: list[tuple[bool, bool]], limit: int, data: st.DataObject
) -> None:
    fresh = data.draw(st.lists(st.booleans(), min_size=count, max_size=count))
    members = [machine(f"s{number}", NEW if new else OLD) for number, new in enumerate(fresh)]
    members += [machine(f"a{number}", NEW if new else OLD) for number, (new, _begun) in enumerate(rows)]
    states = {f"a{number}": UpgradeState(begun=begun) for number, (_new, begun) in enumerate(rows)}
    waves = plan(members, str(limit), **states).waves
    done = [host for wave in waves for host in wave]
    wanted = [item.host for item in members if item.current == OLD or states.get(item.host, UpgradeState()).begun]
    assert sorted(done) == sorted(wanted) and len(set(done)) == len(done)
    for wave in waves:
        servers = [host for host in wave if host.startswith("s")]
        assert len(wave) == 1 if servers else len(wave) <= limit
    roles = [host[0] for host in done]
    assert roles == sorted(roles, reverse=True), "no agent is newer than a server"
