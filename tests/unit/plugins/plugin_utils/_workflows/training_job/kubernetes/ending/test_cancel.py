# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a cancel that failed says of the run. A real API server is in tests/kube_api/test_runs_in_pods.py."""

from __future__ import annotations

import json
import pathlib
import types
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import (
    MusterError,
    RefusedError,
    TransportError,
)
from ansible_collections.muster.training.plugins.module_utils._model.job import parse_job, to_yaml_names
from ansible_collections.muster.training.plugins.module_utils._model.run_record import BackendRef
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.errors import KubeError
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared import run_record
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.kubernetes.ending import cancel

Dict = dict[str, t.Any]
REF = BackendRef("batch/v1", "Job", "r", "team", "u1")


def pod(phase: str, node: str | None) -> Dict:
    return {"metadata": {"name": "p"}, "spec": {"nodeName": node}, "status": {"phase": phase}}


@pytest.mark.parametrize(
    ("live", "pods", "said"),
    [
        ("u1", [pod("Running", "b"), pod("Running", "a"), pod("Failed", "c")],
         "there still are Job team/r and 2 pods on a, b"),
        ("u1", [], "there still are Job team/r"),
        ("another", [pod("Pending", None)], "there still are 1 pod"),
        (None, [pod("Succeeded", "a")], "nothing of it is left"),
    ],
)  # fmt: skip
def test_what_is_left_of_a_run_is_named(live: str | None, pods: list[Dict], said: str) -> None:
    client: t.Any = types.SimpleNamespace(
        get=lambda *_about: {"metadata": {"uid": live}} if live else None,
        list=lambda *_about, **_more: types.SimpleNamespace(items=pods),
    )
    assert cancel._find_left(client, REF, "r") == said


def test_a_cluster_that_does_not_answer_leaves_it_open() -> None:
    def away(*_about: t.Any) -> t.NoReturn:
        raise TransportError("connection refused")

    found = cancel._find_left(t.cast(t.Any, types.SimpleNamespace(get=away)), REF, "r")
    assert found.startswith(
        "it is not known what of it still runs: its cluster could not be asked which of its pods still run (connection "
        "refused); "
    )
    assert found.endswith("add -e muster_cluster_gone=true") and issubclass(TransportError, MusterError)


@pytest.mark.parametrize(
    ("answer", "exists"),
    [
        (TransportError("connection refused"), False),
        (KubeError("namespace", "refused", status=401), True),
        (None, True),
    ],
    ids=["no answer", "refused", "answers"],
)
def test_a_run_whose_cluster_is_gone_ends_in_the_record_alone(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, answer: Exception | None, exists: bool
) -> None:
    def ask() -> str:
        if answer:
            raise answer
        return "u"

    client = types.SimpleNamespace(cluster_id=ask, server="https://x")
    monkeypatch.setattr(cancel.kube_connection, "open_client", lambda *_some, **_more: client)
    said: list[str] = []
    progress = types.SimpleNamespace(say=said.append)
    request: t.Any = types.SimpleNamespace(
        options={"cluster_gone": True}, base=tmp_path, progress=progress, check=False
    )
    home: t.Any = types.SimpleNamespace(run_folder=lambda _run: tmp_path)
    record = run_record.new_record("r", to_yaml_names(parse_job({"name": "r", "script": "/t.py"})), 1000.0)
    run_record.write_record(tmp_path, record)
    if exists:
        with pytest.raises(RefusedError, match="a cluster answers at https://x. Cancel the run without"):
            cancel.cancel(request, home, record)
        return
    result = cancel.cancel(request, home, record)
    assert result["changed"] and "nothing was stopped" in said[-1]
    assert json.loads((tmp_path / "run.json").read_text())["outcome"] == "cancelled"
