# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Kinds: the server's list, and those that need none."""

from __future__ import annotations

import typing as t

from ansible_collections.muster.training.plugins.plugin_utils._kube.api.client import Client
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.connect import connect
from ansible_collections.muster.training.tests.support.fake_clock import FakeClock
from ansible_collections.muster.training.tests.support.scripted_http import Call, Script


def make(script: Script, clock: FakeClock | None = None, **options: t.Any) -> Client:
    given = {"host": "https://kube.example", "token": "token-0123456789", **options}
    exchange: t.Any = script
    return connect(given, environ={}, exchange=exchange, clock=clock or FakeClock())


AGGREGATED = {
    "kind": "APIGroupDiscoveryList",
    "items": [
        {
            "metadata": {"name": "jobset.x-k8s.io"},
            "versions": [
                {
                    "version": "v1alpha2",
                    "resources": [
                        {
                            "resource": "jobsets",
                            "singularResource": "jobset",
                            "responseKind": {"kind": "JobSet"},
                            "scope": "Namespaced",
                            "shortNames": ["js"],
                        }
                    ],
                }
            ],
        }
    ],
}


def test_discovery_takes_two_requests_and_is_kept() -> None:
    empty = {"kind": "APIGroupDiscoveryList", "items": []}
    with Script(Call("GET", "/api", answer=empty), Call("GET", "/apis", answer=AGGREGATED)) as script:
        client = make(script)
        for word in ("js", "jobsets", "JobSet", "jobset.jobset.x-k8s.io", "jobset.x-k8s.io/v1alpha2/JobSet"):
            assert client.resource(word).path("n", "x") == "/apis/jobset.x-k8s.io/v1alpha2/namespaces/n/jobsets/x"


def test_discovery_of_an_older_server_goes_group_by_group() -> None:
    group = {
        "name": "ray.io",
        "preferredVersion": {"version": "v1"},
        "versions": [{"version": "v1alpha1"}, {"version": "v1"}],
    }
    kinds = [{"name": "rayjobs", "kind": "RayJob", "namespaced": True}, {"name": "rayjobs/status", "kind": "RayJob"}]
    with Script(
        Call("GET", "/api", answer={"kind": "APIVersions", "versions": ["v1"]}),
        Call("GET", "/api/v1", answer={"resources": []}),
        Call("GET", "/apis", answer={"kind": "APIGroupList", "groups": [group]}),
        Call("GET", "/apis/ray.io/v1", answer={"resources": kinds}),
        Call("GET", "/apis/ray.io/v1alpha1", answer={"resources": kinds}),
    ) as script:
        assert make(script).resource("rayjobs").api_version == "ray.io/v1"


def test_built_in_kinds_need_no_discovery() -> None:
    with Script() as script:
        client = make(script)
        for word in ("Pod", "pods", "networkpolicies", "storageclass", "batch/v1/Job", "customresourcedefinitions"):
            assert client.resource(word).plural.endswith("s")
