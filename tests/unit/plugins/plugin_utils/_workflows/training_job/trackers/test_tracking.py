# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From the binding that the check of services made to the variables that ranks and pods have."""

from __future__ import annotations

import base64
import dataclasses
import pathlib
import sys
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError, MusterError, RefusedError
from ansible_collections.muster.training.plugins.module_utils._model.job import parse_job
from ansible_collections.muster.training.plugins.plugin_utils._workflows.services import bind
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared import bindings
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared.state_dir import StateHome
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.object_stores import pod_store
from ansible_collections.muster.training.tests.fakes.trackers import API_KEY, TOKEN, FakeMlflow, FakeWandb
from ansible_collections.muster.training.tests.support.run_world import RunWorld

# Prints what it has, without the values of secrets.
SHOW = (
    "import os; print(sorted((k, v if not k.endswith(('TOKEN', 'KEY')) else len(v)) for k, v in os.environ.items() "
    "if k.startswith(('MLFLOW_', 'WANDB_'))), flush=True)"
)


class TrackedWorld(RunWorld):
    """Nodes a and b."""

    def bind(self, server: t.Any, *, check: bool = False, **changes: t.Any) -> dict[str, t.Any]:
        about = {"name": "tracker", "kind": "tracking", "mode": "bind", "endpoint": server.url, **changes}
        request = self.request(None, check=check, services=[about], require_all=True)
        return bind.run(request)

    @property
    def state(self) -> StateHome:
        return StateHome({"path": str(self.root / "home")}, "default")


@pytest.fixture
def world(tmp_path: pathlib.Path) -> t.Iterator[TrackedWorld]:
    found = TrackedWorld(tmp_path)
    yield found
    found.close()


def test_a_program_finds_its_tracker_and_the_record_has_no_secret(
    world: TrackedWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_TOKEN", TOKEN)
    with FakeMlflow(TOKEN) as server:
        bound = world.bind(server, secret_ref={"from": "env", "keys": {"token": "MY_TOKEN"}})
        assert (
            bound["changed"]
            and not world.bind(server, secret_ref={"from": "env", "keys": {"token": "MY_TOKEN"}})["changed"]
        )
        job = world.job(sys.executable, "-c", SHOW, tracking={"binding": "tracker", "experiment": "llm"})
        world.play(job)
        for node in "ab":
            text = (world.folder() / "logs" / f"{node}.log").read_text()
            assert f"('MLFLOW_TRACKING_TOKEN', {len(TOKEN)})" in text
            # Logs show no address that some test of this process has given as a secret.
            port = server.url.rpartition(":")[2]
            assert "('MLFLOW_EXPERIMENT_NAME', 'llm')" in text and f":{port}')" in text.partition("TRACKING_URI")[2]
    kept = [path for path in world.root.rglob("*") if path.is_file() and TOKEN in path.read_text(errors="replace")]
    assert kept == [], "nothing keeps the token"


def test_all_attempts_are_one_run_of_wandb(world: TrackedWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_API_KEY", API_KEY)
    with FakeWandb() as server:
        world.bind(server, provider="wandb", secret_ref={"from": "env"}, env={"WANDB_ENTITY": "team"})
        world.play(world.job(sys.executable, "-c", SHOW, tracking="tracker"))
    text = (world.folder() / "logs" / "a.log").read_text()
    assert f"('WANDB_RUN_ID', '{world.run_id}')" in text and "('WANDB_PROJECT', 'x')" in text
    assert "('WANDB_ENTITY', 'team')" in text and f"('WANDB_API_KEY', {len(API_KEY)})" in text


@pytest.mark.parametrize(
    ("server", "changes", "words"),
    [
        (FakeMlflow(hosts=("mlflow.mesh",)), {}, "it refuses the name 127.0.0.1"),
        (FakeMlflow(TOKEN), {}, "refuses the credentials"),
        (FakeWandb(), {}, "answers 404, not as MLflow"),
    ],
)
def test_what_is_no_tracker_is_not_bound(
    world: TrackedWorld, server: t.Any, changes: dict[str, t.Any], words: str
) -> None:
    with server, pytest.raises(MusterError) as caught:
        world.bind(server, **changes)
    assert words in str(caught.value) and bindings.list_bindings(world.state) == []


def test_a_user_and_a_password(world: TrackedWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "canary-password-1")
    pointer = {"from": "env"}
    with FakeMlflow() as server:
        with pytest.raises(InputError, match="MLFLOW_TRACKING_USERNAME is not there"):
            world.bind(server, secret_ref=pointer)
        monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "me")
        world.bind(server, secret_ref=pointer)
        sent = [headers["authorization"] for _m, path, _q, headers, _b in server.requests if path.startswith("/api")]
    # The API is asked, and a small file is stored and deleted.
    assert sent == ["Basic " + base64.b64encode(b"me:canary-password-1").decode()] * 3


def test_check_mode_writes_nothing(world: TrackedWorld) -> None:
    with FakeMlflow() as server:
        assert world.bind(server, check=True)["changed"] and bindings.list_bindings(world.state) == []


def test_a_job_names_a_tracker_that_its_nodes_reach(world: TrackedWorld) -> None:
    job = world.job("true", tracking="tracker")
    with pytest.raises(InputError, match="'tracker' is not a binding"):
        world.play(job)
    with FakeMlflow() as server:
        world.bind(server)
    seen = bindings.load_binding(world.state, "tracker", "o")
    rows = tuple(dataclasses.replace(row, ok=row.node != "b", problem="no route") for row in seen.reachable_from)
    bindings.write_binding(world.state, dataclasses.replace(seen, reachable_from=rows))
    with pytest.raises(RefusedError, match="'tracker' is not reachable from all nodes: b .host.: no route"):
        world.play(job)
    bindings.write_binding(world.state, dataclasses.replace(seen, component="monitoring"))
    with pytest.raises(InputError, match="is a binding of monitoring, not of tracking"):
        world.play(job)


def test_pods_get_what_is_secret_through_the_secret(world: TrackedWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", TOKEN)
    with FakeMlflow(TOKEN) as server:
        world.bind(server, secret_ref={"from": "env"})
    seen = bindings.load_binding(world.state, "tracker", "o")
    rows = tuple(dataclasses.replace(row, vantage="pod") for row in seen.reachable_from)
    ca = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
    bindings.write_binding(world.state, dataclasses.replace(seen, reachable_from=rows, ca=ca))
    about = {"name": "x", "nodes": 1, "launcher": "command", "command": ["true"], "image": "i", "tracking": "tracker"}
    job = parse_job({**about, "placement": {"backend": "kubernetes"}})
    store = pod_store.open_store(world.state, job, ["a"], "r")
    assert store is not None
    values = store.values(t.cast(t.Any, None), t.cast(t.Any, world.said))
    assert values == {"MLFLOW_TRACKING_TOKEN": TOKEN.encode(), "muster-tracking-ca": ca.encode()}
    assert store.env["MLFLOW_EXPERIMENT_NAME"] == "x"
