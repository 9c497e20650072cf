# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bindings: parsed and written without loss, and refused by node, with the matrix, where a service is out of reach."""

from __future__ import annotations

import dataclasses
import json
import typing as t

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.module_utils._model import binding
from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError, MusterError, RefusedError

ROW = {"node": "a", "vantage": "host", "ok": True, "latency_ms": 2.5, "mb_per_s": 80}
VALUE: dict[str, t.Any] = {
    "schema": 1,
    "name": "store",
    "component": "object_store",
    "mode": "bind",
    "endpoint": "https://s3.example",
    "resources": [{"purpose": "checkpoints", "type": "bucket", "ref": "b/p"}],
    "secret_ref": {"from": "env", "keys": {"access_key": "A"}},
    "reachable_from": [ROW, {**ROW, "node": "b", "ok": False, "problem": "refused", "fix": "Open it"}],
    "checked_at": "2026-11-21T00:00:00Z",
}


def load(**changes: t.Any) -> binding.Binding:
    return binding.Binding.from_dict({**VALUE, **changes})


def test_a_binding_survives_its_file() -> None:
    found = load()
    again = binding.Binding.from_dict(json.loads(json.dumps(found.to_dict())))
    assert again == found and found.to_dict()["secret_ref"]["from"] == "env"
    assert found.find_resource("checkpoints") and found.find_resource("datasets") is None


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"schema": 2}, "binding.schema"),
        ({"component": "object-store"}, "Did you mean 'object_store'?"),
        ({"mode": "none"}, "binding.mode"),
        ({"endpoint": None}, "binding.endpoint: is required"),
        ({"enpoint": "x"}, "Did you mean 'endpoint'?"),
        ({"ca": "-----BEGIN PRIVATE KEY-----"}, "binding.ca: must be certificates"),
        ({"secret_ref": {"from": "env", "value": "hidden-secret"}}, "binding.secret_ref.value"),
    ],
)
def test_what_is_wrong_is_named(changes: dict[str, t.Any], words: str) -> None:
    with pytest.raises(InputError) as caught:
        load(**changes)
    assert words in str(caught.value) and "hidden-secret" not in str(caught.value)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)
)


@given(st.dictionaries(st.sampled_from(sorted(VALUE)), JSON))
def test_any_json_is_a_binding_or_an_input_error(changes: dict[str, t.Any]) -> None:
    try:
        found = load(**changes)
    except InputError:
        return
    assert binding.Binding.from_dict(found.to_dict()) == found


def test_only_what_the_user_wrote_makes_another_service() -> None:
    assert load().is_same_service(load(reachable_from=[], checked_at=None))
    assert not load().is_same_service(load(region="eu"))


def test_a_job_is_refused_with_the_matrix_of_its_nodes() -> None:
    binding.require_reachable(load(), ["a"], "host", "job.x")
    with pytest.raises(RefusedError) as caught:
        binding.require_reachable(load(), ["a", "b"], "host", "job.x")
    expected = "job.x: 'store' is not reachable from all nodes: b (host): refused; a (host): ok 2 ms, 80 MB/s. Open it"
    assert str(caught.value) == expected
    with pytest.raises(RefusedError, match=r"c \(host\): not checked.*Check it from c with the services playbook"):
        binding.require_reachable(load(), ["a", "c"], "host", "job.x")
    with pytest.raises(RefusedError, match=r"a \(pod\): not checked"):
        binding.require_reachable(load(), ["a"], "pod", "job.x")


def test_where_nodes_are_not_known_one_that_reaches_it_is_enough() -> None:
    binding.require_reachable(load(), None, "host", "job.x")
    with pytest.raises(RefusedError, match=r"any pod \(pod\): not checked.*muster_services_pods"):
        binding.require_reachable(load(), None, "pod", "job.x")
    with pytest.raises(RefusedError, match=r"b \(host\): refused"):
        rows = tuple(row for row in load().reachable_from if not row.ok)
        binding.require_reachable(dataclasses.replace(load(), reachable_from=rows), None, "host", "job.x")


def test_what_another_cluster_saw_does_not_count() -> None:
    row = binding.Reachability("n", "pod", True, cluster_id="u-1")
    found = dataclasses.replace(load(), reachable_from=(row,))
    binding.require_reachable(found, ["n"], "pod", "job.x", "u-1")
    for nodes in (["n"], None):
        with pytest.raises(RefusedError, match="not checked"):
            binding.require_reachable(found, nodes, "pod", "job.x", "u-2")


def test_a_large_matrix_shows_what_failed_first() -> None:
    rows = [binding.Reachability(f"n{number:03}", "host", number != 77) for number in range(100)]
    text = binding.describe_matrix(rows)
    assert text.startswith("n077 (host): failed; n000") and text.endswith("and 88 more")


def test_a_binding_of_another_kind_or_without_the_bucket_is_refused() -> None:
    assert binding.require_resource(load(), "object_store", "checkpoints", "job.x").ref == "b/p"
    for component, purpose, words in (
        ("secrets", "checkpoints", "not of secrets"),
        ("object_store", "datasets", "it has: checkpoints"),
    ):
        with pytest.raises(MusterError, match=words):
            binding.require_resource(load(), component, purpose, "job.x")
