# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rented names: one way to take them apart, short enough for every provider."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError
from ansible_collections.muster.training.plugins.module_utils._model.lease import (
    InstanceName,
    LeaseProof,
    Leftover,
    TeardownProof,
    parse_cluster_name,
    parse_instance_name,
    parse_pool_name,
)

clusters = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,22}[a-z0-9])?", fullmatch=True)
pools = st.from_regex(r"[a-z][a-z0-9]{0,15}", fullmatch=True)
tokens = st.from_regex(r"[0-9a-f]{8}", fullmatch=True)


@given(clusters, pools, st.integers(0, 9999), tokens)
def test_a_name_comes_apart_in_one_way(cluster: str, pool: str, index: int, token: str) -> None:
    assert parse_cluster_name(cluster) == cluster
    assert parse_pool_name(pool) == pool
    name = str(InstanceName(cluster, pool, index, token))
    assert len(name) <= 63
    assert parse_instance_name(name) == InstanceName(cluster, pool, index, token)
    assert parse_instance_name(f"{name}-12") == parse_instance_name(name)
    assert parse_instance_name(f"{name}.tail1234.ts.net") == parse_instance_name(name)


@given(st.text())
def test_any_text_is_a_name_or_not(text: str) -> None:
    parse_instance_name(text)


@pytest.mark.parametrize(
    "name", [None, "", "node-1", "lab-h100-0-1f2e3d4", "lab-h100-x-1f2e3d4c", "LAB-h100-0-1f2e3d4c"]
)
def test_other_names_are_not_ours(name: str | None) -> None:
    assert parse_instance_name(name) is None


@pytest.mark.parametrize("pool", ["", "h-100", "H100", "1gpu", "a" * 17, None, ["x"], True])
def test_a_pool_that_would_make_names_ambiguous_is_refused(pool: object) -> None:
    with pytest.raises(InputError):
        parse_pool_name(pool)


@pytest.mark.parametrize("cluster", ["", "-a", "a_b", "A", "a" * 25, None, {}])
def test_a_cluster_that_does_not_fit_is_refused(cluster: object) -> None:
    with pytest.raises(InputError):
        parse_cluster_name(cluster)


def test_a_proof_is_clean_only_without_anything_of_ours() -> None:
    proof = LeaseProof("1f2e3d4c", "lab-a-1", "i-1", "acc1", ("t1", "t2"))
    clean = TeardownProof(leases=(proof,), unknown=(("i-9", "somebody"),))
    assert clean.clean
    assert json.loads(json.dumps(clean.to_dict()))["leases"][0]["absent_at"] == ["t1", "t2"]
    assert not TeardownProof(leftovers=(Leftover("volume", "runpod", "v1", "x"),)).clean
    assert not TeardownProof(billing=({"id": "i-1"},)).clean
    everything = TeardownProof(
        billing=({"provider": "runpod", "problem": "not proved gone"},),
        orphans=({"name": "n", "id": "i-2", "provider": "lambda"},),
        leftovers=(Leftover("volume", "runpod", "v1", "x"),),
    )
    advice = "Restore the ledger, or delete them with reap -e muster_reap_orphans=delete"
    assert everything.describe_remaining() == [
        "runpod (no id known): not proved gone",
        f"orphans, which no order in this ledger is of: n (i-2 at lambda). {advice}",
        "left over: volume x (v1 at runpod)",
    ]
    assert not TeardownProof(orphans=({"id": "i-1"},)).clean
