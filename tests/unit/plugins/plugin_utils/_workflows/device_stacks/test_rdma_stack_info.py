# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is read of a cluster before its HCAs are offered, and the refusals of the task."""

from __future__ import annotations

import json
import pathlib
import types
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError, RefusedError
from ansible_collections.muster.training.plugins.plugin_utils._workflows.device_stacks import rdma_stack_info
from ansible_collections.muster.training.tests.support.rdma_machines import describe, port

OWNED = {
    "manager": "muster-rdma",
    "operation": "Apply",
    "fieldsV1": {"f:metadata": {"f:labels": {"f:muster.training/rdma": {}}}},
}
GPU_1 = describe("gpu-1", [port("mlx5_0", netdev="eth1")])


def node(name: str, **meta: t.Any) -> dict[str, t.Any]:
    return {"kind": "Node", "metadata": {"name": name, **meta}, "status": {}}


def run(monkeypatch: pytest.MonkeyPatch, *nodes: t.Any, **options: t.Any) -> dict[str, t.Any]:
    def read(kind: str, *_words: t.Any, **_how: t.Any) -> t.Any:
        return types.SimpleNamespace(items=list(nodes) if kind == "v1/Node" else [])

    client = types.SimpleNamespace(list=read, catalog=types.SimpleNamespace(serves=lambda _version: False))
    monkeypatch.setattr(rdma_stack_info, "open_client", lambda *_words: client)
    given = {"provider": "shared_device_plugin", "devices": {"GPU-1": GPU_1}, "refuse": True, **options}
    return t.cast("dict[str, t.Any]", rdma_stack_info.run(given, pathlib.Path()))


def test_machines_are_nodes_by_their_name(monkeypatch: pytest.MonkeyPatch) -> None:
    result = run(monkeypatch, node("gpu-1"), node("cpu-1"))
    (group,), (labelled,) = result["groups"], result["labels"]
    assert (result["action"], group["nodes"], group["resource"]) == ("install", ["gpu-1"], "rdma/roce")
    assert json.loads(group["config"]) == {"configList": [GPU_1["rdma"]["plugin_entry"]]}
    assert labelled["metadata"]["labels"] == {"muster.training/rdma": group["name"]}
    assert json.loads(labelled["metadata"]["annotations"]["muster.training/rdma-facts"])["hcas"] == ["mlx5_0"]
    assert result["labelled"] == [] and result["bound"] == {} and result["policies"] == []
    assert result["image"].startswith("ghcr.io/mellanox/k8s-rdma-shared-dev-plugin:v1.5.3@sha256:")


def test_what_the_role_wrote_before_stands_for_a_machine_that_was_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    (first,) = run(monkeypatch, node("gpu-1"))["labels"]
    live = node("gpu-1")
    live["metadata"] = {**first["metadata"], "managedFields": [OWNED]}
    assert run(monkeypatch, live, devices={})["labels"] == [first]
    # The same text of another tool's is not believed.
    theirs = {**live, "metadata": {**live["metadata"], "managedFields": []}}
    assert run(monkeypatch, theirs, devices={})["action"] == "none"


def test_refusals_end_the_task_or_are_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RefusedError, match=r"nothing offers the HCAs of gpu-1\. Set rdma_stack_provider"):
        run(monkeypatch, node("gpu-1"), provider="bind")
    result = run(monkeypatch, node("gpu-1"), provider="bind", refuse=False)
    assert result["action"] == "refuse" and len(result["refusals"]) == 1 and result["labels"] == []
    with pytest.raises(InputError, match=r"devices\.gpu-1: must have facts and rdma"):
        run(monkeypatch, node("gpu-1"), devices={"gpu-1": {}})


def test_images_of_virtual_functions_have_the_digests_that_the_operators_release_lists(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: dict[str, t.Any] = {"provider": "sriov", "ipam": {"type": "host-local"}, "refuse": False}
    result = run(monkeypatch, node("gpu-1"), **asked, operator_version="26.1.1")
    # What is left are the charts of K3s.
    assert [line.partition(" needs ")[0] for line in result["refusals"]] == ["rdma_stack_provider: sriov"]
    assert result["images"]["multus-cni"]["version"].startswith("sha256:8167840a2a7f")
    assert result["images"]["plugins"]["repository"] == "nvcr.io/nvidia/mellanox"
    names = (
        "operator",
        "sriovConfigDaemon",
        "webhook",
        "sriovDevicePlugin",
        "sriovCni",
        "ibSriovCni",
        "rdmaCni",
        "ovsCni",
    )
    assert set(result["chart_images"]) == set(names)
    assert all("@sha256:" in image for image in result["chart_images"].values())
    assert run(monkeypatch, node("gpu-1"), **asked, operator_version="26.1.1", by_tag=True)["chart_images"] == {}


def test_of_the_default_operator_no_digests_are_published_and_the_refusal_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: dict[str, t.Any] = {"provider": "sriov", "ipam": {"type": "host-local"}, "refuse": False}
    result = run(monkeypatch, node("gpu-1"), **asked)
    (line,) = [line for line in result["refusals"] if "rdma_stack_images.multus-cni: its digest is not in" in line]
    assert "Set rdma_stack_operator_version: '26.1.1', whose digests it has, or name it as REPOSITORY/" in line
    assert result["chart_images"] == {}
    own = {name: f"r/{name}@sha256:{'a' * 64}" for name in ("multus-cni", "plugins")}
    named = run(monkeypatch, node("gpu-1"), **asked, images=own, operator_version="26.1.1")
    assert named["images"]["plugins"]["repository"] == "r"


@pytest.mark.parametrize(
    ("text", "repository", "image", "version"),
    [
        ("nvcr.io/nvidia/mellanox/plugins:v1", "nvcr.io/nvidia/mellanox", "plugins", "v1"),
        ("ghcr.io/a/b:v1@sha256:00", "ghcr.io/a", "b", "sha256:00"),
        ("registry:5000/b@sha256:00", "registry:5000", "b", "sha256:00"),
    ],
)
def test_an_image_is_named_as_the_operators_policies_do(text: str, repository: str, image: str, version: str) -> None:
    assert rdma_stack_info.split_image(text) == {"repository": repository, "image": image, "version": version}
    chosen = rdma_stack_info.downloads.image_of(rdma_stack_info.PLUGIN)
    assert rdma_stack_info.split_image(chosen)["version"] == "v1.5.3"


@pytest.mark.parametrize("text", ["", "plugins", "a/b", "a/b@", ":x"])
def test_what_names_no_image_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="is not REPOSITORY/IMAGE@sha256:DIGEST"):
        rdma_stack_info.split_image(text)
