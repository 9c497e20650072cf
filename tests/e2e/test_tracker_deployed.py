# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The real MLflow with the files and words of a deployment, its files in the bucket of a real SeaweedFS, and a job."""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import pathlib
import subprocess
import typing as t

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._services import own_certificate
from ansible_collections.muster.training.plugins.plugin_utils._services.component import (
    ACCESS,
    SECRET,
    TLS_CERTIFICATE,
    TLS_KEY,
    ArtifactStore,
    Site,
)
from ansible_collections.muster.training.plugins.plugin_utils._services.tracking import mlflow
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared import deployed
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared.state_dir import StateHome
from ansible_collections.muster.training.tests.e2e import service_world
from ansible_collections.muster.training.tests.e2e.service_world import KEYS, ServiceWorld, Store, free_port
from ansible_collections.muster.training.tests.support import canary, mlflow_program, postgres_program

LOGS = """
import os, pathlib
import mlflow
with mlflow.start_run(run_name="rank-" + os.environ["RANK"]):
    mlflow.log_metric("loss", 0.5, step=1)
    pathlib.Path("notes.txt").write_text("notes of rank " + os.environ["RANK"])
    mlflow.log_artifact("notes.txt")
"""


@pytest.fixture
def world(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> t.Iterator[ServiceWorld]:
    if not service_world.services_python():
        pytest.skip("MUSTER_SERVICES_PYTHON names no Python with SeaweedFS and botocore")
    mlflow_program.require()
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    found = ServiceWorld(tmp_path)
    yield found
    found.close()


@dataclasses.dataclass(frozen=True)
class Tracker:
    """MLflow as a deployment on a host starts it; ``entry`` is its entry of ``muster_services``."""

    world: ServiceWorld
    site: Site
    made: dict[str, str]
    process: subprocess.Popen[bytes]

    @property
    def entry(self) -> dict[str, t.Any]:
        place = {"host": "node-1", "login": True, "tls": True, "artifacts": "store"}
        return {"name": "mlflow", "kind": "tracking", "mode": "deploy", "deploy": place}


@pytest.fixture
def running() -> t.Iterator[contextlib.ExitStack]:
    """What the store runs in, so that a test can end it."""
    with contextlib.ExitStack() as found:
        yield found


@pytest.fixture
def store(world: ServiceWorld, running: contextlib.ExitStack) -> Store:
    return running.enter_context(service_world.seaweedfs(world.root / "store", "artifacts,ckpt"))


@pytest.fixture
def tracker(world: ServiceWorld, store: Store) -> t.Iterator[Tracker]:
    """Start it with the component's own files, words and variables, and note it as a deployment does."""
    component, port = mlflow.COMPONENT, free_port()
    root = world.root / "own"
    for name in ("data", "files"):
        (root / name).mkdir(parents=True)
    bucket = ArtifactStore("artifacts/mlflow", store.endpoint, "us-east-1", None, {
        ACCESS: KEYS["AWS_ACCESS_KEY_ID"], SECRET: KEYS["AWS_SECRET_ACCESS_KEY"]})  # fmt: skip
    about = ("127.0.0.1", port, str(root / "data"), str(root / "files"))
    site = Site("mlflow", f"https://127.0.0.1:{port}", *about, ("127.0.0.1", "mlflow.mesh"), True, bucket)
    pair = own_certificate.make("mlflow", ["127.0.0.1"], ["mlflow.mesh"])
    packed = zip((TLS_KEY, TLS_CERTIFICATE), (base64.b64encode(text.encode()).decode() for text in pair), strict=True)
    made = {**component.make_credentials(), **dict(packed)}
    for name, text in component.write_files(site, made).items():
        (root / "files" / name).write_text(text)
    home = StateHome({"path": str(world.state)}, "local")
    deployed.write_credentials(home, "mlflow", made)
    place = {"host": "node-1", "namespace": None}
    about_it = {"kind": "tracking", "provider": "mlflow", "backend": "hosts", "place": place}
    deployed.write_deployed(home, "mlflow", {"schema": 1, **about_it, "endpoint": site.endpoint})
    words = component.command(site)
    variables = {**component.environment(site), **component.hidden(site, made)}
    for value in (made[mlflow.PASSWORD], KEYS["AWS_SECRET_ACCESS_KEY"]):
        assert value not in " ".join(words) and value not in str(component.environment(site))
    with mlflow_program.serving(words, variables, root, f"{site.endpoint}{component.ready}", pair[1]) as process:
        yield Tracker(world, site, made, process)


def test_a_job_logs_to_what_was_deployed_and_its_files_are_in_the_bucket(
    tracker: Tracker, store: Store, running: contextlib.ExitStack
) -> None:
    world, site = tracker.world, tracker.site
    resources = [{"purpose": "artifacts", "ref": "artifacts/mlflow"}, {"purpose": "checkpoints", "ref": "ckpt"}]
    bound = world.play("services", muster_services=[world.bind(store, resources=resources)])
    assert bound.code == 0, bound.output
    first, again = world.bind_deployed(tracker.entry), world.bind_deployed(tracker.entry)
    assert (first.code, first.changed) == (0, 1), first.output
    assert (again.code, again.changed) == (0, 0), again.output
    binding = world.binding("mlflow")
    assert binding["endpoint"] == site.endpoint and binding["secret_ref"]["from"] == "file"
    assert not [key for key in store.keys("artifacts") if "muster-check" in key]
    # Its own names answer with any port; an unknown one is refused as a rebinding attack.
    for host, status in (("mlflow.mesh:5000", 200), ("mlflow.mesh", 200), ("evil.example", 403)):
        assert mlflow_program.ask(tracker.site.endpoint, tracker.made, host) == status, host
    assert mlflow_program.ask(site.endpoint, {**tracker.made, mlflow.PASSWORD: "wrong-password"}, "127.0.0.1") == 401
    job = world.job(command=[mlflow_program.python(), "-c", LOGS], tracking={"binding": "mlflow", "experiment": "llm"})
    trained = world.play("train", job=job)
    assert trained.code == 0, trained.output
    stored = [key for key in store.keys("artifacts") if key.endswith("notes.txt")]
    assert len(stored) == 2 and all(key.startswith("mlflow/1/") for key in stored), stored
    shown = "".join(result.output for result in (bound, first, again, trained))
    for name, form in canary.encodings(tracker.made[mlflow.PASSWORD]).items():
        assert form.decode() not in shown, name
    # Its store is away: figures are still taken, and the check says what is not.
    running.close()
    gone = world.bind_deployed(tracker.entry)
    assert gone.code != 0 and "cannot store files (HTTP 500)" in gone.errors[0], gone.output
    removed = world.bind_deployed({**tracker.entry, "state": "absent"})
    assert (removed.code, removed.changed) == (0, 1) and not world.binding_file("mlflow").exists(), removed.output


def test_runs_are_in_postgresql_and_its_password_is_in_no_command_line(tmp_path: pathlib.Path) -> None:
    """With the component's own words and variables; the server starts again and finds its runs."""
    mlflow_program.require()
    component, port = mlflow.COMPONENT, free_port()
    with postgres_program.serving(tmp_path) as address:
        about = (f"http://127.0.0.1:{port}", "127.0.0.1", port, str(tmp_path), str(tmp_path))
        site = Site("mlflow", *about, database=address)
        variables = {**component.environment(site), **component.hidden(site, component.make_credentials())}
        for name in ("first", "second"):
            with mlflow_program.serving(
                component.command(site), variables, tmp_path, f"{site.endpoint}{component.ready}"
            ):
                made = mlflow_program.call(site.endpoint, "experiments/create", {"name": name})
                assert "experiment_id" in made, made
                listed = (place.read_bytes() for place in pathlib.Path("/proc").glob("[0-9]*/cmdline"))
                with contextlib.suppress(ProcessLookupError, FileNotFoundError):
                    assert not [words for words in listed if postgres_program.PASSWORD.encode() in words]
        rows = postgres_program.query(address, "select name from experiments order by name")
        assert rows.split() == ["Default", "first", "second"]
        assert not (tmp_path / "mlflow.db").exists()
        assert postgres_program.PASSWORD not in (tmp_path / "mlflow.log").read_text()
