# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is read of a cluster before its GPUs are offered, and the refusals of the task."""

from __future__ import annotations

import pathlib
import types
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError, RefusedError
from ansible_collections.muster.training.plugins.plugin_utils._workflows.device_stacks import gpu_stack_info

FIELDS: dict[str, t.Any] = {
    "f:metadata": {"f:labels": {".": {}, "f:muster.training/gpu": {}, "f:nvidia.com/gpu.count": {}}}
}
OWNED = {"manager": "muster-gpu", "operation": "Apply", "fieldsV1": FIELDS}
RECORD = {"name": "GPU-1", "gpu": {"count": 2, "model": "NVIDIA L4", "memory_gib": 22.5, "arch": "ada"}}


def node(name: str, offered: str = "0", **meta: t.Any) -> dict[str, t.Any]:
    return {"kind": "Node", "metadata": {"name": name, **meta}, "status": {"allocatable": {"nvidia.com/gpu": offered}}}


def run(monkeypatch: pytest.MonkeyPatch, *nodes: t.Any, serves: bool = False, **options: t.Any) -> dict[str, t.Any]:
    listed = {"v1/Node": list(nodes)}

    def read(kind: str, *_words: t.Any, **_how: t.Any) -> t.Any:
        return types.SimpleNamespace(items=listed.get(kind, []))

    client = types.SimpleNamespace(list=read, catalog=types.SimpleNamespace(serves=lambda _version: serves))
    monkeypatch.setattr(gpu_stack_info, "open_client", lambda *_words: client)
    given = {"provider": "device_plugin", "records": [RECORD], "refuse": True, **options}
    return t.cast("dict[str, t.Any]", gpu_stack_info.run(given, pathlib.Path()))


def test_records_are_of_nodes_by_their_name(monkeypatch: pytest.MonkeyPatch) -> None:
    result = run(monkeypatch, node("gpu-1"), node("cpu-1"))
    assert (result["action"], result["nodes"], result["expected"]) == ("install", ["gpu-1"], {"gpu-1": 2})
    (labelled,) = result["labels"]
    assert labelled["metadata"] == {
        "name": "gpu-1",
        "labels": {
            "muster.training/gpu": "device-plugin",
            "nvidia.com/gpu.product": "NVIDIA-L4",
            "nvidia.com/gpu.memory": "23040",
            "nvidia.com/gpu.family": "ada",
            "nvidia.com/gpu.count": "2",
        },
    }
    assert result["labelled"] == [] and result["has_nfd"] is False and result["bound"] == {}


def test_what_the_role_applied_before_is_known_by_its_field_manager(monkeypatch: pytest.MonkeyPatch) -> None:
    live = {"muster.training/gpu": "device-plugin", "nvidia.com/gpu.count": "2"}
    result = run(monkeypatch, node("gpu-1", labels=live, managedFields=[OWNED]), records=[])
    assert result["labels"][0]["metadata"]["labels"] == live
    assert result["labelled"] == [{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "gpu-1"}}]
    none = [{"name": "gpu-1", "gpu": {"count": 0}}]
    gone = run(monkeypatch, node("gpu-1", labels=live, managedFields=[OWNED]), records=none)
    assert gone["labels"] == gone["labelled"] and gone["action"] == "none"


def test_refusals_end_the_task_or_are_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RefusedError, match=r"nothing offers nvidia\.com/gpu of gpu-1\. Set gpu_stack_provider"):
        run(monkeypatch, node("gpu-1"), provider="bind")
    result = run(monkeypatch, node("gpu-1"), provider="bind", refuse=False)
    assert result["action"] == "refuse" and len(result["refusals"]) == 1
    with pytest.raises(InputError, match="nodes: gpu-7 is not a Node of the cluster"):
        run(monkeypatch, node("gpu-1"), nodes=["gpu-7"])
    with pytest.raises(InputError, match=r"records\[0\]\.gpu\.count"):
        run(monkeypatch, node("gpu-1"), records=[{"name": "gpu-1", "gpu": {"count": "many"}}])


def test_the_image_is_named_by_its_digest_or_as_a_bundle_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "@sha256:" in run(monkeypatch)["image"]
    assert run(monkeypatch, by_tag=True)["image"] == "nvcr.io/nvidia/k8s-device-plugin:v0.19.3"
