# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From a registered model to the run and the checkpoint that it stands for."""

from __future__ import annotations

import pathlib
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.binding import Binding
from ansible_collections.muster.training.plugins.module_utils._model.errors import MusterError
from ansible_collections.muster.training.plugins.module_utils._node import files
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared import bindings
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared.state_dir import StateHome
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job_fetch import models
from ansible_collections.muster.training.tests.fakes.trackers import FakeMlflow


@pytest.fixture
def server() -> t.Iterator[FakeMlflow]:
    with FakeMlflow() as found:
        found.runs["0a"] = {}
        tags = {"muster.run_id": "net-1", "muster.checkpoint": "step[5].pt"}
        listed = [{"key": key, "value": value} for key, value in tags.items()]
        own = {"version": "1", "run_id": "0a", "source": "s3://b/net-1/step[5].pt", "tags": listed}
        found.models["net"] = [own, {"version": "2", "run_id": "0a", "source": "mlflow-artifacts:/1/x"}]
        found.aliases |= {("net", "trained"): "1", ("net", "theirs"): "2"}
        yield found


def no_cluster() -> t.Any:
    raise AssertionError("its credentials are in no cluster")


def bind(home: StateHome, name: str, endpoint: str, **more: t.Any) -> None:
    about = {"name": name, "component": "tracking", "mode": "bind", "endpoint": endpoint, **more}
    bindings.write_binding(home, Binding.from_dict(about))


@pytest.fixture
def home(tmp_path: pathlib.Path, server: FakeMlflow) -> StateHome:
    found = StateHome({"path": str(tmp_path)}, "lab")
    bind(found, "tracker", server.url)
    about = {"schema": 1, "run_id": "net-1", "job": {}, "state": "ended", "outcome": "succeeded"}
    files.private_dir(found.run_folder("net-1"))
    files.write_json(found.run_folder("net-1") / "run.json", {**about, "submitted_at": "2026-01-01T00:00:00Z"})
    return found


@pytest.mark.parametrize(("model", "tracker"), [("net", None), ("net@trained", "tracker")])
def test_a_model_stands_for_a_checkpoint_of_a_run(home: StateHome, model: str, tracker: str | None) -> None:
    assert models.find_model_files(home, model, tracker, no_cluster) == ("net-1", "step[[]5].pt", "1")


@pytest.mark.parametrize(
    ("model", "tracker", "words"),
    [
        ("nets", None, "tracker has no model nets"),
        ("net@best", None, "no version of net with the alias best"),
        ("net@theirs", None, "version 2 of net was not registered by a run of this collection"),
        ("a/b", None, "cannot be a model's name"),
        ("net", "trackr", "did you mean 'tracker'"),
    ],
)
def test_what_cannot_be_found_is_named(home: StateHome, model: str, tracker: str | None, words: str) -> None:
    with pytest.raises(MusterError, match=words):
        models.find_model_files(home, model, tracker, no_cluster)


def test_a_run_of_another_controller_is_named_with_the_address(home: StateHome) -> None:
    (home.run_folder("net-1") / "run.json").unlink()
    with pytest.raises(MusterError, match="this controller does not know.*copy s3://b/net-1/step"):
        models.find_model_files(home, "net", None, no_cluster)


def test_which_tracker_is_asked(home: StateHome, server: FakeMlflow) -> None:
    bind(home, "other", server.url, provider="wandb")
    with pytest.raises(MusterError, match="there are several trackers: other, tracker"):
        models.find_model_files(home, "net", None, no_cluster)
    with pytest.raises(MusterError, match="other is of Weights & Biases"):
        models.find_model_files(home, "net", "other", no_cluster)
    for name in ("other", "tracker"):
        bindings.remove_binding(home, name)
    with pytest.raises(MusterError, match="no tracker is bound"):
        models.find_model_files(home, "net", None, no_cluster)
