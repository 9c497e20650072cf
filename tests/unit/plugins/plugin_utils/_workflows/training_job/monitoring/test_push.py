# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Metrics of runs: what a real Prometheus has of a real run, and a run whose Prometheus is away."""

from __future__ import annotations

import json
import pathlib
import sys
import time
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.binding import Binding
from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError, RefusedError
from ansible_collections.muster.training.plugins.plugin_utils._report.data.load import load_run
from ansible_collections.muster.training.plugins.plugin_utils._workflows.services import bind
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared.state_dir import StateHome
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.monitoring import push
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_report import write_run_report
from ansible_collections.muster.training.tests.support import prometheus_program
from ansible_collections.muster.training.tests.support.kube_api import free_port
from ansible_collections.muster.training.tests.support.run_world import RunWorld

STEPS = (
    "import json, os, time\n"
    "for step in range(1, 41):\n"
    "    with open(os.environ['MUSTER_METRICS_FILE'], 'a') as out:\n"
    "        print(json.dumps({'at': time.time(), 'step': step, 'loss': 1 / step, 'samples_per_s': 8.0,"
    " 'rank': int(os.environ.get('NODE_RANK', 0))}), file=out)\n"
    "    time.sleep(0.05)\n"
)


@pytest.fixture
def world(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> t.Iterator[RunWorld]:
    monkeypatch.setattr(push, "_EVERY_S", 0.2)
    found = RunWorld(tmp_path)
    yield found
    found.close()


def bound(world: RunWorld, url: str, **more: t.Any) -> t.Any:
    about = {"name": "metrics", "kind": "monitoring", "mode": "bind", "endpoint": url, **more}
    return bind.run(world.request(None, services=[about], require_all=True))


def test_a_real_prometheus_has_the_metrics_of_a_run(world: RunWorld, tmp_path: pathlib.Path) -> None:
    with prometheus_program.running(tmp_path / "prometheus", prometheus_program.OTLP) as server:
        (found,) = bound(world, server.url)["bindings"]
        assert [(row["node"], row["ok"]) for row in found["reachable_from"]] == [("a", True), ("b", True)]
        assert not bound(world, server.url)["changed"]
        # A Grafana that is bound, too: only the address is read of it.
        (world.root / "home" / "default" / "bindings" / "board.json").write_text(
            json.dumps({**found, "name": "board", "provider": "grafana", "endpoint": "https://board:3000"})
        )
        job = world.job(sys.executable, "-c", STEPS, monitoring="metrics")
        done = world.play(job, reports_url="https://reports.example.com/lab/")
        assert done["run"]["outcome"] == "succeeded"
        linked = load_run(world.root / "home" / "default" / "runs" / world.run_id).monitoring
        assert linked and linked["dashboard"].startswith(
            f"https://board:3000/d/muster-job?var-run={world.run_id}&from=1"
        )
        assert not linked["dashboard"].endswith("to=now"), "it has ended"
        run = f'{{run="{world.run_id}"}}'
        assert server.value(f"muster_run_step{run}") == 40.0
        assert server.value(f"muster_run_loss{run}") == pytest.approx(1 / 40)
        assert server.value(f"muster_run_active{run}") == 0.0, "its end was sent"
        assert server.value(f"max_over_time(muster_run_active{run}[5m])") == 1.0
        assert server.value(f"muster_run_nodes_asked{run}") == 2.0
        assert server.value(f"muster_run_samples_per_second{run}") == 8.0
        assert {labels["rank"] for labels, _value in server.query(f"muster_run_rank_step_seconds{run}")} == {"0", "1"}
        nodes = server.query(f"max_over_time(muster_run_node{run}[5m])")
        assert {labels["node"] for labels, _value in nodes} == {"a", "b"}
        info = dict(server.query(f"muster_run_info{run} and on (run) muster_run_active{run}")[0][0])
        assert info["name"] == "x" and info["backend"] == "hosts" and "team" not in info
        # A web server of the folder ``runs`` answers it with the report that is written there.
        home = StateHome({"path": str(world.root / "home")}, "default")
        written = pathlib.Path(str(write_run_report(home, world.run_id, (), None, False)["html"]))
        below = written.resolve().relative_to((world.root / "home" / "default" / "runs").resolve())
        assert info["report"] == f"https://reports.example.com/lab/{below}"
    assert not [line for line in world.said.lines if "metrics are not sent" in line]


def test_a_run_ends_as_it_would_while_prometheus_is_away(world: RunWorld, tmp_path: pathlib.Path) -> None:
    port = free_port()
    with prometheus_program.running(tmp_path / "prometheus", prometheus_program.OTLP, port=port) as server:
        bound(world, server.url)
    began = time.monotonic()
    found = world.play(world.job(sys.executable, "-c", STEPS, monitoring="metrics"))
    assert found["run"]["outcome"] == "succeeded" and time.monotonic() - began < 60
    (said,) = [
        line for line in world.said.lines if "metrics are not sent to metrics, and are dropped meanwhile" in line
    ]
    assert "127.0.0.1" in said


def test_what_cannot_be_bound_is_named(world: RunWorld, tmp_path: pathlib.Path) -> None:
    with prometheus_program.running(tmp_path / "off") as server, pytest.raises(RefusedError) as caught:
        bound(world, server.url)
    assert "HTTP 404" in caught.value.message and "--web.enable-otlp-receiver" in caught.value.fix
    with pytest.raises(RefusedError, match="cannot be used from all nodes"):
        bound(world, f"http://127.0.0.1:{free_port()}")
    assert not (world.home() / "bindings").exists()


def test_a_binding_of_another_kind_is_refused(world: RunWorld, tmp_path: pathlib.Path) -> None:
    with pytest.raises(InputError, match="'metrics' is not a binding"):
        world.play(world.job("true", monitoring="metrics"))
    with prometheus_program.running(tmp_path / "prometheus", prometheus_program.OTLP) as server:
        bound(world, server.url)
    place = world.home() / "bindings" / "metrics.json"
    place.write_text(json.dumps({**json.loads(place.read_text()), "component": "tracking"}))
    with pytest.raises(InputError, match="is a binding of tracking, not of monitoring"):
        world.play(world.job("true", monitoring="metrics"))


def test_the_lines_of_a_file_are_read_once_and_a_cut_one_waits(tmp_path: pathlib.Path) -> None:
    place = tmp_path / "metrics.jsonl"
    new = push._NewLines(place, 100)
    assert list(new.take()) == []
    place.write_text('{"step": 1}\n{"step": 2}\n{"st')
    assert [line["step"] for line in new.take()] == [1, 2]
    assert list(new.take()) == []
    with place.open("a") as handle:
        handle.write('ep": 3}\n')
    assert [line["step"] for line in new.take()] == [3]
    with place.open("a") as handle:
        handle.writelines(f'{{"step": {step}}}\n' for step in range(4, 100))
    steps = [line["step"] for line in new.take()]
    assert steps[-1] == 99 and len(steps) < 10, "of a file that grew by more, the end"
    place.write_text('{"step": 5}\n')
    assert [line["step"] for line in new.take()] == [5], "a file that was cut begins anew"


def test_of_ranks_that_report_the_same_step_one_is_read_for_the_run(tmp_path: pathlib.Path) -> None:
    """64 ranks report each step; all have a pace, and a checkpoint counts whoever reports it."""
    at = time.time() - 100
    started = [{"at": at, "kind": "worker_started", "rank": rank, "node": "a", "attempt": 1} for rank in range(64)]
    lines: list[dict[str, t.Any]] = [
        {"at": at + step, "step": step, "rank": rank, "loss": float(rank)}
        for step in range(1, 21)
        for rank in range(64)
    ]
    lines.append({"at": at + 21, "step": 21, "rank": 63, "checkpoint_step": 20})
    for name, listed in (("events", started), ("metrics", lines)):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in listed))
    record = {"schema": 1, "run_id": "r", "job": {}, "state": "running", "submitted_at": "2026-01-01T00:00:00Z"}
    (tmp_path / "run.json").write_text(json.dumps(record))
    about = {"name": "m", "component": "monitoring", "mode": "bind", "endpoint": "http://127.0.0.1:1"}
    metrics = push.RunMetrics(push.BoundMonitoring(Binding.from_dict(about), {}), tmp_path)
    seen = {sample.name: sample.value for sample in metrics.read(at + 30)}
    assert seen["muster_run_checkpoint_step"] == 20.0 and seen["muster_run_step_seconds_median"] == pytest.approx(1.0)
    assert len([sample for sample in metrics.read(at + 31) if sample.name == "muster_run_rank_step_seconds"]) == 64
