# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Sizing a CoreWeave node pool: the exact calls, and what is refused. Shapes only: no such cluster can be run here."""

from __future__ import annotations

import pathlib
import typing as t

import pytest
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.action.coreweave_node_pool import ActionModule
from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError, MusterError, RefusedError
from ansible_collections.muster.training.plugins.plugin_utils._providers.coreweave.scale import parse_pool
from ansible_collections.muster.training.plugins.plugin_utils._workflows.coreweave_node_pool import ensure_node_pool
from ansible_collections.muster.training.plugins.plugin_utils._workflows.node_pool.accounts import Externals
from ansible_collections.muster.training.plugins.plugin_utils._workflows.node_pool.present import Context
from ansible_collections.muster.training.tests.fakes.virtual import VirtualClock
from ansible_collections.muster.training.tests.fakes.wire import TOKEN
from ansible_collections.muster.training.tests.support.scripted_http import Call, Script

POOLS = "/apis/compute.coreweave.com/v1alpha1/nodepools"
OBJECT = {
    "apiVersion": "compute.coreweave.com/v1alpha1",
    "kind": "NodePool",
    "metadata": {"name": "h100"},
    "spec": {
        "computeClass": "default",
        "instanceType": "gd-8xh100ib-i128",
        "targetNodes": 4,
        "minNodes": 0,
        "maxNodes": 8,
    },
    "status": {"currentNodes": 3},
}
FOUND = Call("GET", f"{POOLS}/h100", answer=OBJECT)
DELETE = Call("DELETE", f"{POOLS}/h100", answer={})
MISSING = Call("GET", f"{POOLS}/h100", status=404, answer={"kind": "Status", "message": "not found"})


def run(*calls: Call, check: bool = False, **options: t.Any) -> tuple[dict[str, t.Any], Script]:
    given = {"api_token": TOKEN, "endpoint": "abc.k8s.us-east-04a.coreweave.com", "name": "h100", **options}
    given = {key: value for key, value in given.items() if value is not None}
    found = ArgumentSpecValidator(ActionModule.OPTIONS, **ActionModule.RULES).validate(given)
    assert not found.error_messages, found.error_messages
    with Script(*calls) as script:
        context = Context(pathlib.Path(), check, Externals(VirtualClock(), script, {}))
        result = ensure_node_pool(dict(found.validated_parameters), context)
    return result, script


def test_a_pool_is_scaled_by_a_merge_patch_of_what_differs() -> None:
    after = {**OBJECT, "spec": {**OBJECT["spec"], "targetNodes": 6}}  # type: ignore[dict-item]
    headers = {"Content-Type": "application/merge-patch+json"}
    change = Call("PATCH", f"{POOLS}/h100", body={"spec": {"targetNodes": 6}}, headers=headers, answer=after)
    result, _script = run(FOUND, change, target_nodes=6)
    assert result["changed"] and result["node_pool"]["target_nodes"] == 6 and result["node_pool"]["nodes"] == 3
    assert (result["diff"]["before"]["target_nodes"], result["diff"]["after"]["target_nodes"]) == (4, 6)


def test_a_pool_that_fits_is_left_alone() -> None:
    assert not run(FOUND, target_nodes=4, max_nodes=8, instance_type="gd-8xh100ib-i128")[0]["changed"]


def test_check_mode_only_reads() -> None:
    assert run(FOUND, check=True, target_nodes=0)[0]["changed"]
    assert run(MISSING, check=True, target_nodes=2, instance_type="x")[0]["node_pool"]["target_nodes"] == 2
    assert run(FOUND, check=True, state="absent")[0]["changed"]


def test_a_new_pool() -> None:
    body = {
        "apiVersion": "compute.coreweave.com/v1alpha1",
        "kind": "NodePool",
        "metadata": {"name": "h100"},
        "spec": {
            "computeClass": "default",
            "instanceType": "gd-8xh100ib-i128",
            "targetNodes": 2,
            "nodeLabels": {"team": "a"},
        },
    }
    create = Call("POST", POOLS, body=body, answer=body)
    result, _script = run(MISSING, create, target_nodes=2, instance_type="gd-8xh100ib-i128", labels={"team": "a"})
    assert result["changed"] and result["node_pool"]["instance_type"] == "gd-8xh100ib-i128"
    with pytest.raises(InputError, match="instance_type"):
        run(MISSING, target_nodes=2)


@pytest.mark.parametrize(
    ("options", "word"),
    [({"target_nodes": 9}, "outside 0 to 8"), ({"target_nodes": 4, "instance_type": "other"}, "cannot be changed")],
)
def test_what_the_pool_cannot_be_is_refused(options: dict[str, t.Any], word: str) -> None:
    with pytest.raises(RefusedError, match=word):
        run(FOUND, **options)


def test_deleting() -> None:
    assert run(FOUND, DELETE, MISSING, state="absent")[0]["changed"]
    assert not run(MISSING, state="absent")[0]["changed"]


def test_a_pool_is_gone_when_its_object_is() -> None:
    """A NodePool keeps its object until its nodes are removed; they bill until then."""
    assert run(FOUND, DELETE, FOUND, FOUND, MISSING, state="absent")[0]["node_pool"] is None
    with pytest.raises(RefusedError, match="still exists 10 s after it was deleted, with 3 nodes that may bill"):
        run(FOUND, DELETE, FOUND, FOUND, FOUND, state="absent", wait_timeout_s=10)


@pytest.mark.parametrize("is_made", [True, False])
def test_a_lost_answer_of_a_create_is_settled_by_its_name(is_made: bool) -> None:
    lost = Call("POST", POOLS, status=503, answer={})
    calls = [MISSING, lost, FOUND if is_made else MISSING]
    if is_made:
        assert run(*calls, target_nodes=4, instance_type="gd-8xh100ib-i128")[0]["node_pool"]["nodes"] == 3
    else:
        with pytest.raises(MusterError, match="503"):
            run(*calls, target_nodes=4, instance_type="gd-8xh100ib-i128")


def test_the_cluster_may_be_named() -> None:
    cluster = {"id": "c1", "name": "demo", "status": "STATUS_RUNNING", "apiServerEndpoint": "abc.k8s.coreweave.com"}
    listed = Call("GET", "/v1beta1/cks/clusters", answer={"items": [cluster]})
    assert not run(listed, FOUND, endpoint=None, cluster="demo", target_nodes=4)[0]["changed"]
    with pytest.raises(InputError, match="names 0 clusters"):
        run(listed, endpoint=None, cluster="other", target_nodes=4)
    two = Call("GET", "/v1beta1/cks/clusters", answer={"items": [cluster, {**cluster, "id": "c2"}]})
    with pytest.raises(InputError, match="names 2 clusters. Give the id of one"):
        run(two, endpoint=None, cluster="demo", target_nodes=4)
    assert not run(two, FOUND, endpoint=None, cluster="c1", target_nodes=4)[0]["changed"]
    young = Call("GET", "/v1beta1/cks/clusters", answer={"items": [{**cluster, "status": "STATUS_CREATING"}]})
    with pytest.raises(RefusedError, match="STATUS_CREATING"):
        run(young, endpoint=None, cluster="demo", target_nodes=4)


@pytest.mark.parametrize("options", [{"name": "H100"}, {"target_nodes": -1}, {"endpoint": "http://elsewhere.example"}])
def test_wrong_options_send_nothing(options: dict[str, t.Any]) -> None:
    with pytest.raises(MusterError):
        run(**{"target_nodes": 1, **options})


@given(st.recursive(st.none() | st.integers() | st.text(), lambda s: st.lists(s) | st.dictionaries(st.text(), s)))
def test_any_object_reads_as_a_pool(value: t.Any) -> None:
    parse_pool({"metadata": value, "spec": value, "status": value})
    parse_pool(value)
