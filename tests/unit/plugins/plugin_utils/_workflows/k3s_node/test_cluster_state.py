# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What goes with a cluster, and what stays."""

from __future__ import annotations

import json
import pathlib

from ansible_collections.muster.training.plugins.module_utils._model.binding import Binding
from ansible_collections.muster.training.plugins.plugin_utils._workflows.k3s_node import cluster_state
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared import bindings, deployed
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared.state_dir import StateHome
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job import fabric_file

PODS = {"nodes": ["a"], "outcome": "pass", "cluster_id": "u-1"}
HOSTS = {"nodes": ["b"], "outcome": "pass"}


def bind(home: StateHome, name: str) -> None:
    about = {"name": name, "component": "object_store", "mode": "bind", "endpoint": "http://x"}
    bindings.write_binding(home, Binding.from_dict(about))


def test_what_is_of_the_cluster_alone_goes_and_records_stay(tmp_path: pathlib.Path) -> None:
    home = StateHome({"path": str(tmp_path)}, "lab")
    assert cluster_state.forget_cluster(home) is False
    (home.folder / "teams").mkdir(parents=True)
    (home.folder / "runs" / "r").mkdir(parents=True)
    for name in ("pod_network.json", "teams/vision.kubeconfig", "runs/r/run.json", "fabric_history.jsonl"):
        (home.folder / name).write_text("{}")
    (home.folder / "fabric.json").write_text(json.dumps({"schema": 1, "islands": [PODS, HOSTS]}))
    for name, backend in (("inside", "kubernetes"), ("outside", "hosts")):
        deployed.write_deployed(home, name, {"endpoint": "http://x", "backend": backend, "place": "p"})
        deployed.write_credentials(home, name, {"KEY": "a-secret-of-it"})
        bind(home, name)
    assert cluster_state.forget_cluster(home) is True
    left = sorted(str(place.relative_to(home.folder)) for place in home.folder.rglob("*") if place.is_file())
    assert left == [
        "bindings/outside.json",
        "fabric.json",
        "fabric_history.jsonl",
        "runs/r/run.json",
        "services/inside.credentials",
        "services/inside.removed.json",
        "services/outside.credentials",
        "services/outside.json",
    ]
    assert json.loads((home.folder / "fabric.json").read_text())["islands"] == [HOSTS]
    assert cluster_state.forget_cluster(home) is False


def test_a_verdict_on_another_cluster_is_none_on_this_one(tmp_path: pathlib.Path) -> None:
    (tmp_path / "fabric.json").write_text(json.dumps({"schema": 1, "islands": [PODS, HOSTS]}))
    assert fabric_file.read_verdicts(tmp_path, "u-1") == [PODS, HOSTS]
    assert fabric_file.read_verdicts(tmp_path, "u-2") == [HOSTS]
    assert fabric_file.read_verdicts(tmp_path, "ca:0") == [PODS, HOSTS], "an id of another kind tells nothing"
