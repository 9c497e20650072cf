# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The one recipe for a pod of a lost node: marked as disrupted, then deleted without its kubelet."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._kube.api.errors import KubeError
from ansible_collections.muster.training.plugins.plugin_utils._kube.nodes.lost_pods import (
    delete_lost_pod,
    describe_pods,
    is_unready,
)


class Requests:
    """Keeps what is sent; a patch may be refused with a status."""

    def __init__(self, refusal: int = 0) -> None:
        self.refusal = refusal
        self.sent: list[tuple[str, t.Any]] = []

    def patch(self, kind: str, name: str, body: t.Any, namespace: str, **options: str) -> None:
        assert (kind, name, namespace) == ("v1/Pod", "a", "n")
        assert options == {"how": "strategic", "subresource": "status"}
        if self.refusal:
            raise KubeError("Pod n/a", "refused", status=self.refusal)
        self.sent.append(("patch", body))

    def delete(self, kind: str, name: str, namespace: str, *, uid: str, grace_s: int) -> bool:
        assert (kind, name, namespace, uid) == ("v1/Pod", "a", "n", "u")
        self.sent.append(("delete", grace_s))
        return True


def delete(requests: Requests, phase: str = "Running") -> bool:
    pod: t.Any = {"metadata": {"name": "a", "namespace": "n", "uid": "u"}, "status": {"phase": phase}}
    return delete_lost_pod(t.cast(t.Any, requests), pod, "gpu-3")


def test_a_lost_pod_is_marked_as_disrupted_before_it_is_deleted() -> None:
    """A Job's pod failure policy looks at failed pods and their condition; without it the loss counts as a crash."""
    requests = Requests()
    assert delete(requests)
    (patch, body), last = requests.sent
    assert (patch, last) == ("patch", ("delete", 0))
    assert body["metadata"] == {"uid": "u"}, "another pod of this name is not marked"
    (condition,) = body["status"]["conditions"]
    assert (body["status"]["phase"], condition["type"], condition["status"]) == ("Failed", "DisruptionTarget", "True")
    assert "gpu-3" in condition["message"] and condition["lastTransitionTime"].endswith("Z")


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_pod_that_has_ended_keeps_its_end(phase: str) -> None:
    requests = Requests()
    assert delete(requests, phase) and requests.sent == [("delete", 0)]


@pytest.mark.parametrize("status", [403, 404, 409, 422])
def test_a_pod_whose_status_may_not_be_written_is_deleted_all_the_same(status: int) -> None:
    requests = Requests(status)
    assert delete(requests) and requests.sent == [("delete", 0)]


@pytest.mark.parametrize("status", [429, 500, 503])
def test_an_outage_is_raised_before_the_deletion(status: int) -> None:
    requests = Requests(status)
    with pytest.raises(KubeError):
        delete(requests)
    assert requests.sent == []


@pytest.mark.parametrize(
    ("nodes", "said"),
    [([], ""), ([None], "1 pod"), (["b", "a", "a"], "3 pods on a, b"), (["a", None], "2 pods on a")],
)
def test_pods_are_counted_with_their_nodes(nodes: list[str | None], said: str) -> None:
    assert describe_pods([t.cast(t.Any, {"spec": {"nodeName": node} if node else {}}) for node in nodes]) == said


@pytest.mark.parametrize(("status", "unready"), [("True", False), ("False", True), ("Unknown", False), (None, False)])
def test_a_pod_is_not_ready_once_its_node_is_not(status: str | None, unready: bool) -> None:
    conditions = [
        {"type": "Initialized", "status": "False"},
        *([{"type": "Ready", "status": status}] if status else []),
    ]
    assert is_unready(t.cast(t.Any, {"status": {"conditions": conditions}})) is unready
    assert not is_unready(t.cast(t.Any, {}))
