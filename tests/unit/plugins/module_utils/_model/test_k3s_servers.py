# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Several servers: which one others join, what they must share, and which may go."""

from __future__ import annotations

import typing as t

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.module_utils._model import k3s_servers as servers
from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError, RefusedError
from ansible_collections.muster.training.plugins.module_utils._model.k3s import K3sMember


def server(host: str, address: str = "192.0.2.1/24", **changes: t.Any) -> K3sMember:
    text, _, prefix = address.partition("/")
    own = ({"interface": "eth0", "address": text, "prefix": int(prefix)},)
    return K3sMember(host, "server", host, **{"addresses": own, **changes})


RUNS = {"datastore": "etcd", "active": True}


@pytest.mark.parametrize(
    ("members", "chosen", "lead"),
    [
        ([server("a"), server("b")], ["a", "b"], "a"),
        ([server("a"), server("b", **RUNS)], ["a", "b"], "b"),
        ([server("a", datastore="etcd"), server("b", **RUNS), server("c", **RUNS)], ["a", "c"], "c"),
        ([server("a", **RUNS), server("b")], ["b"], "a"),
        ([server("a"), server("b", datastore="sqlite")], ["a", "b"], "b"),
        ([server("a"), server("b", active=True)], ["a", "b"], "a"),
    ],
    ids=["none begun", "one runs", "of the limit", "outside the limit", "one stands still", "runs and has nothing"],
)
def test_the_server_that_others_join_is_one_that_runs(members: list[K3sMember], chosen: list[str], lead: str) -> None:
    assert servers.choose_lead(members, chosen).host == lead


def test_servers_that_stand_still_start_together_when_the_others_are_no_majority() -> None:
    names = ["a", "b", "c"]
    for running, standing in ((3, []), (2, []), (1, ["b", "c"]), (0, names)):
        members = [server(name, datastore="etcd", active=index < running) for index, name in enumerate(names)]
        assert servers.find_standing(members) == standing
    assert servers.find_standing([server("a", datastore="sqlite"), server("b")]) == []
    assert servers.find_standing([server("a", datastore="etcd")]) == []


@pytest.mark.parametrize(
    ("members", "said"),
    [
        (
            [server("a"), server("b", "198.51.100.1/24")],
            "muster_k3s_role: the servers are on different networks: a on 192.0.2.0/24; b on 198.51.100.0/24. Make servers",
        ),
        ([server("a", site="x"), server("b", site="y")], "the servers are on different sites: a on x; b on y"),
        (
            [server("a"), server("b", settings={"flannel-backend": "none"})],
            "flannel-backend: differs between the servers",
        ),
        ([server("a", authority="1"), server("b", authority="2")], "a, b are servers of different clusters"),
        (
            [server("a", datastore="sqlite"), server("b", datastore="sqlite")],
            "a, b are each the only server of a cluster",
        ),
    ],
)
def test_servers_that_cannot_keep_one_etcd_are_named(members: list[K3sMember], said: str) -> None:
    with pytest.raises(InputError) as raised:
        servers.check_servers(members)
    assert said in str(raised.value)
    servers.check_servers(members[:1])


@pytest.mark.parametrize(
    "members",
    [
        [server("a"), server("b", "192.0.2.9/24"), server("c", "192.0.2.10/24")],
        # Of a cloud whose machines have a network of one address, and of a mesh, nothing is known.
        [server("a", "10.0.0.1/32"), server("b", "192.0.2.9/24")],
        [server("a", "100.64.0.1/10"), server("b")],
        [server("a", site="x"), server("b", "198.51.100.1/24", site="x")],
        [server("a", settings={"kube-apiserver-arg": ["v=1"]}), server("b")],
    ],
)
def test_servers_of_one_network_or_of_one_site_may_be_one_cluster(members: list[K3sMember]) -> None:
    servers.check_servers(members)


@pytest.mark.parametrize(
    ("down", "leaving", "said"),
    [
        ("", "c", None),
        ("", "bc", None),
        ("c", "c", None),
        ("b", "c", "c: of 3 servers b does not answer; without c the rest of etcd has no majority. Bring b back first"),
        ("ab", "c", "c: of 3 servers a, b do not answer"),
        ("bc", "c", "c: of 3 servers b, c do not answer"),
        ("", "abc", "is the last server. Remove the whole cluster"),
    ],
)
def test_servers_leave_while_a_majority_stays(down: str, leaving: str, said: str | None) -> None:
    members = {name: name not in down for name in "abc"}
    if said is None:
        servers.check_removal(members, list(leaving))
        return
    with pytest.raises(RefusedError) as raised:
        servers.check_removal(members, list(leaving))
    assert said in str(raised.value)


@given(st.lists(st.booleans(), min_size=1, max_size=7), st.sets(st.integers(0, 6)))
def test_what_is_let_go_leaves_a_majority_at_every_step(alive: list[bool], going: set[int]) -> None:
    members = {f"s{index}": answers for index, answers in enumerate(alive)}
    leaving = [f"s{index}" for index in going if index < len(alive)]
    try:
        servers.check_removal(members, leaving)
    except RefusedError:
        return
    # As K3s does it: one after another, those that do not answer first.
    left = dict(members)
    for name in sorted(leaving, key=lambda item: (members[item], item)):
        assert sum(left.values()) * 2 > len(left)
        del left[name]
        assert left and sum(left.values()) * 2 > len(left)
