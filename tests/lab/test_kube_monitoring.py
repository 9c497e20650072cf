# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Monitoring in a cluster: Alertmanager, Prometheus and node_exporter as pods, a job that sends its metrics there, and
what is told of it when one rank stands still.

Real: Prometheus, Alertmanager, node_exporter, kubelet, the job's pods. The rules' own times are cut to seconds.
The tests are one story, in their order.
"""

from __future__ import annotations

import base64
import contextlib
import http.server
import json
import os
import pathlib
import re
import ssl
import threading
import time
import typing as t
import urllib.parse
import urllib.request

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._services.monitoring.component import RULES
from ansible_collections.muster.training.tests.lab import kube_said
from ansible_collections.muster.training.tests.lab.kube import plan
from ansible_collections.muster.training.tests.lab.kube.stages import until
from ansible_collections.muster.training.tests.lab.kube_drills import Scene
from ansible_collections.muster.training.tests.lab.kube_plays import Controller, command, count_tasks, training
from ansible_collections.muster.training.tests.lab.kube_registry import registry
from ansible_collections.muster.training.tests.lab.test_fabric_cluster import Fabric
from ansible_collections.muster.training.tests.support import prometheus_program
from ansible_collections.muster.training.tests.support.kube_lab import NOTES, KubeLab, kube_lab, not_run

__all__ = ["kube_lab"]

PROGRAMS = ("prometheus", "alertmanager", "node_exporter")
KINDS = "statefulset,daemonset,service,secret,serviceaccount,persistentvolumeclaim"
# Of a run that finds both as they are asked for: none is for one service alone.
TASKS = 6
PATH = "/hook/token-of-the-hook-77"
# It steps four times a second, or as slowly as the file says; each rank's process is known by the word "stepper".
STEPPER = """
import json, os, time
end = time.time() + 600
step = 0
while time.time() < end and not os.path.exists("/tmp/enough"):
    step += 1
    time.sleep(3 if os.path.exists("/tmp/slow") else 0.25)
    with open(os.environ["MUSTER_METRICS_FILE"], "a") as report:
        rank = int(os.environ["NODE_RANK"])
        report.write(json.dumps({"at": time.time(), "rank": rank, "step": step, "loss": 1 / step}) + "\\n")
"""


class Hook:
    """A webhook that keeps what it is told."""

    def __init__(self, address: str) -> None:
        told: list[dict[str, t.Any]] = []

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                told.extend({**item, "path": self.path} for item in body["alerts"])
                self.send_response(200)
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.told = told
        self.server = http.server.ThreadingHTTPServer((address, 0), Handler)
        self.url = f"http://{address}:{self.server.server_port}{PATH}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def names(self, status: str = "firing") -> set[str]:
        return {item["labels"]["alertname"] for item in self.told if item["status"] == status}


class World:
    """A controller, and the services on the first node."""

    def __init__(self, controller: Controller, images: t.Mapping[str, str], hook: Hook) -> None:
        self.controller, self.lab, self.images, self.hook = controller, controller.lab, images, hook
        self.node = self.lab.nodes[0]
        self.space = controller.team.namespace
        controller.env["ALERT_WEBHOOK_URL"] = hook.url

    @property
    def state(self) -> pathlib.Path:
        return self.controller.folder / "state" / "default"

    def services(self, **more: t.Any) -> list[dict[str, t.Any]]:
        """Return what a user writes."""
        place = {"namespace": self.space, "node": self.node, "size": "1Gi"}
        places = {name: {**place, "image": image, "host_path": self.data(name)} for name, image in self.images.items()}
        alerts = {"provider": "alertmanager", "deploy": {**places["alertmanager"], "webhook": {"from": "env"}}}
        metrics = {"deploy": {**places["prometheus"], "alertmanager": "alerts"}}
        about = {"kind": "monitoring", "mode": "deploy", **more}
        return [{"name": "alerts", **about, **alerts}, {"name": "metrics", **about, **metrics}]

    def data(self, name: str) -> str:
        return f"/var/tmp/{name}-{self.space}"

    def play(self, *services: dict[str, t.Any]) -> tuple[str, float]:
        pods = {"namespace": self.space, "image": self.lab.image}
        began = time.monotonic()
        extra: dict[str, t.Any] = {"muster_services": list(services), "muster_services_pods": pods}
        code, output = self.controller.play("services", muster_node_hosts="localhost", **extra)
        assert code == 0, output
        return output, time.monotonic() - began

    def exporters(self, **values: t.Any) -> tuple[str, float]:
        began = time.monotonic()
        given = {
            "exporter_stack_namespace": self.space,
            "exporter_stack_node_image": self.images["node_exporter"],
            "exporter_stack_dcgm": False,
            **values,
        }
        code, output = self.controller.play("exporter_stack", **given)
        assert code == 0, output
        return output, time.monotonic() - began

    def versions(self) -> list[tuple[str, str]]:
        text = self.lab.kubectl("get", KINDS, "-n", self.space, "-o", "json")
        own = [item["metadata"] for item in json.loads(text)["items"] if item["metadata"]["name"].startswith("muster-")]
        return sorted((meta["name"], meta["resourceVersion"]) for meta in own)

    def query(self, expression: str) -> list[dict[str, t.Any]]:
        """Ask Prometheus from the controller, as its user does."""
        bound = json.loads((self.state / "bindings" / "metrics.json").read_text())
        lines = (self.state / "services" / "metrics.credentials").read_text().splitlines()
        keys = dict(line.split(" = ", 1) for line in lines if " = " in line)
        user = base64.b64encode(f"{keys['PROMETHEUS_USERNAME']}:{keys['PROMETHEUS_PASSWORD']}".encode()).decode()
        url = f"{bound['endpoint']}/api/v1/query?query={urllib.parse.quote(expression)}"
        asked = urllib.request.Request(url, headers={"Authorization": f"Basic {user}"})
        with urllib.request.urlopen(
            asked, timeout=20, context=ssl.create_default_context(cadata=bound["ca"])
        ) as answer:
            return t.cast("list[dict[str, t.Any]]", json.loads(answer.read())["data"]["result"])

    def close(self) -> None:
        for name in PROGRAMS:
            self.lab.on_node(self.node, "rm", "-rf", self.data(name))
        for name in ("alerts", "metrics"):
            self.lab.api.ask("DELETE", f"/api/v1/persistentvolumes/{self.space}-muster-{name}-data")


@pytest.fixture(scope="module")
def world(kube_lab: KubeLab, tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[World]:
    programs = {name: pathlib.Path(prometheus_program.find(name)).read_bytes() for name in PROGRAMS}
    hook = Hook(kube_said.gateway(kube_lab))
    with registry(kube_lab) as pushed, kube_lab.namespace(cpu="4", memory="8Gi") as team:
        images = {name: pushed.push(name.replace("_", "-"), {f"usr/bin/{name}": data}, "amd64", False)
                  for name, data in programs.items()}  # fmt: skip
        for node in kube_lab.nodes:
            for image in images.values():
                kube_lab.on_node(node, "ctr", "-n", "k8s.io", "images", "pull", "--plain-http", image)
        # The control plane, where a DaemonSet has a pod too, has no registry.
        exported = kube_lab.cluster.folder / "shared" / "node-exporter.tar"
        words = ("ctr", "-n", "k8s.io", "images")
        kube_lab.on_node(kube_lab.nodes[0], *words, "export", f"{plan.SHARED}/{exported.name}", images["node_exporter"])
        kube_lab.on_node(kube_lab.cluster.up_record.control.name, *words, "import", f"{plan.SHARED}/{exported.name}")
        exported.unlink()
        found = World(Controller(kube_lab, team, tmp_path_factory.mktemp("monitoring")), images, hook)
        places = " ".join(found.data(name) for name in PROGRAMS)
        # Folders of a node belong to root: the pods are somebody else.
        kube_lab.on_node(found.node, "sh", "-c", f"mkdir -p {places} && chown 65532:65532 {places}")
        before = RULES.read_text()
        try:
            yield found
        finally:
            assert RULES.read_text() == before
            hook.server.shutdown()
            hook.server.server_close()
            found.close()


def changed(output: str) -> int:
    return sum(int(number) for number in re.findall(r"changed=(\d+)", output))


def test_it_is_deployed_and_again_nothing_is_written(world: World) -> None:
    _output, first = world.play(*world.services())
    _output, more = world.exporters()
    before, visits = world.versions(), world.controller.count_visits()
    output, again = world.play(*world.services())
    # One pod on each node asks both.
    visits = world.controller.count_visits() - visits
    tasks = count_tasks(output)
    assert visits == len(world.lab.nodes) and tasks <= TASKS, (visits, tasks, output)
    output += world.exporters()[0]
    assert changed(output) == 0 and world.versions() == before, output
    NOTES.append(
        f"monitoring: deployed and bound in {first:.0f} s, exporters {more:.0f} s, again in {again:.1f} s by {tasks} tasks"
        f" and {visits} pods with no object written, at load {os.getloadavg()[0]:.1f}"
    )
    assert first + more <= 90
    everywhere = {*world.lab.nodes, world.lab.cluster.up_record.control.name}
    nodes = lambda: {item["metric"]["node"] for item in world.query('up{job="muster-nodes"} == 1')}  # noqa: E731
    assert until(lambda: nodes() == everywhere, 60), world.query('up{job="muster-nodes"}')
    assert {item["metric"]["node"] for item in world.query("node_memory_MemTotal_bytes")} == everywhere
    kept = world.lab.kubectl("get", "pods", "-n", world.space, "-o", "json")
    assert world.hook.url not in kept and PATH not in kept


def test_ranks_that_stand_still_and_one_that_is_slow_are_told_at_the_webhook(world: World) -> None:
    lab, controller = world.lab, world.controller
    secret = "muster-metrics"
    live = json.loads(lab.kubectl("get", "secret", secret, "-n", world.space, "-o", "json"))
    rules = base64.b64decode(live["data"][RULES.name]).decode()
    assert rules == RULES.read_text()
    # The test does not wait for the rules' own times.
    short = base64.b64encode(re.sub(r"for: \w+", "for: 1s", rules).encode()).decode()
    lab.kubectl("patch", "secret", secret, "-n", world.space, "-p", json.dumps({"data": {RULES.name: short}}))
    job = command("python3", "-c", STEPPER, monitoring="metrics")
    play = controller.start("train", job, muster_run_id="steps")
    try:
        stepped = lambda: [item for item in world.query("muster_run_step") if float(item["value"][1]) > 40]  # noqa: E731
        assert until(lambda: play.ended or bool(stepped()), 150) and not play.ended, play.output
        (series,) = world.query("muster_run_ranks_seen")
        assert series["value"][1] == "2" and world.query("muster_run_node")[0]["metric"]["node"] in lab.nodes
        # kubelet brings a changed Secret to the pod within a minute or two; Prometheus reads it when it is told.
        reload = "pkill -HUP -x prometheus"
        shown = "cat /proc/$(pgrep -x prometheus | head -1)/root/run/muster/files/muster.rules.yml"

        def is_there() -> bool:
            return "for: 1s" in lab.on_node(world.node, "sh", "-c", shown)

        assert until(is_there, 150)
        lab.on_node(world.node, "sh", "-c", reload)
        assert "RunStalled" not in world.hook.names()
        began = time.monotonic()
        for node in lab.nodes:
            lab.on_node(node, "sh", "-c", "pkill -STOP -f [M]USTER_METRICS_FILE || true")
        assert until(lambda: "RunStalled" in world.hook.names(), 180), (
            world.hook.told,
            world.query("muster_run_stalled"),
        )
        NOTES.append(f"monitoring: ranks stopped -> RunStalled at the webhook after {time.monotonic() - began:.0f} s")
        (told,) = [item for item in world.hook.told if item["labels"]["alertname"] == "RunStalled"][:1]
        assert told["annotations"]["fix"] and told["path"] == PATH
        for node in lab.nodes:
            lab.on_node(node, "sh", "-c", "pkill -CONT -f [M]USTER_METRICS_FILE || true")
        assert until(lambda: "RunStalled" in world.hook.names("resolved"), 180), world.hook.told
        assert "RunStraggler" not in world.hook.names()
        pod, began = Scene(controller, "steps", play, job).pod(1)["metadata"]["name"], time.monotonic()
        lab.kubectl("exec", pod, "-n", world.space, "--", "touch", "/tmp/slow")
        assert until(lambda: "RunStraggler" in world.hook.names(), 180), world.query("muster_run_step_seconds_slowest")
        NOTES.append(f"monitoring: a rank slowed -> RunStraggler at the webhook after {time.monotonic() - began:.0f} s")
        assert world.query("muster_run_slowest_rank")[0]["value"][1] == "1"
        lab.kubectl("exec", pod, "-n", world.space, "--", "rm", "/tmp/slow")
        assert until(lambda: "RunStraggler" in world.hook.names("resolved"), 180), world.hook.told
        # A rank that gets the processor for a tenth of the time.
        world.hook.told.clear()
        began = time.monotonic()
        with starved(world, Scene(controller, "steps", play, job).pod(0)["spec"]["nodeName"]):
            assert until(lambda: "RunStraggler" in world.hook.names(), 180), world.query("muster_run_rank_step_seconds")
        NOTES.append(
            f"monitoring: a rank starved -> RunStraggler at the webhook after {time.monotonic() - began:.0f} s"
        )
        assert world.query("muster_run_slowest_rank")[0]["value"][1] == "0"
    finally:
        for node in lab.nodes:
            with contextlib.suppress(Exception):
                lab.on_node(
                    node,
                    "sh",
                    "-c",
                    "pkill -CONT -f [M]USTER_METRICS_FILE; pkill -KILL -f [M]USTER_METRICS_FILE || true",
                )
        play.stop()


@contextlib.contextmanager
def starved(world: World, node: str) -> t.Iterator[None]:
    """Have the ranks of a node run for a tenth of the time as long as the block lasts."""
    match, stop = "[M]USTER_METRICS_FILE", "/tmp/fed"
    loop = f"rm -f {stop}; while [ ! -e {stop} ]; do pkill -STOP -f {match}; sleep 2; pkill -CONT -f {match}; sleep 0.2; done"
    world.lab.on_node(node, "sh", "-c", f"({loop}) >/dev/null 2>&1 &")
    try:
        yield
    finally:
        world.lab.on_node(node, "sh", "-c", f"touch {stop}; sleep 3; pkill -CONT -f {match} || true")


@pytest.mark.torch
def test_ranks_that_use_tcp_where_rdma_was_proven_are_told(world: World) -> None:
    """Their own sockets say it, while they train. What the fabric test proved is written by the test: no RDMA is here."""
    lab, controller = world.lab, world.controller
    if not lab.torch:
        not_run("the cluster has no torch (MUSTER_TORCH_PYTHON)")
    fabric = Fabric(lab, controller.team, controller.folder)
    try:
        _, output = fabric.verify(muster_fabric_allow_unproven=True)
        (place,) = (controller.folder / "state").glob("*/fabric.json")
        document = json.loads(place.read_text())
        for entry in document["islands"]:
            if entry["island"] == "lab":
                proven = {**entry["transport"], "verdict": "rdma_gdr", "expected": "rdma_gdr"}
                entry |= {"transport": proven, "lane": "A"}
        place.write_text(json.dumps(document))
        world.hook.told.clear()
        job = training(lab, f"{world.space}-tcp", 900, 0.2, monitoring="metrics")
        began = time.monotonic()
        play = controller.start("train", {**job, "resources": {"cpu": 1.2, "memory": "2Gi"}}, muster_run_id="tcp")
        try:
            told = lambda: [item for item in world.hook.told if item["labels"]["alertname"] == "RunOnTcp"]  # noqa: E731
            assert until(lambda: play.ended or bool(told()), 180) and told(), (
                play.output[-3000:],
                world.query("muster_run_info"),
            )
            NOTES.append(
                f"monitoring: ranks on TCP -> RunOnTcp at the webhook {time.monotonic() - began:.0f} s after train"
            )
            assert told()[0]["labels"]["run"] == "tcp" and "verify_fabric" in told()[0]["annotations"]["fix"]
        finally:
            play.stop()
            controller.play("cancel", muster_run_id="tcp")
    finally:
        lab.unlabel()


def test_it_goes_and_takes_nothing_of_others(world: World) -> None:
    output, _seconds = world.play(*reversed(world.services(state="absent")))
    world.exporters(exporter_stack_state="absent")
    left = [name for name, _version in world.versions() if not name.endswith("-data")]
    assert left == [], left
    rights = world.lab.items("/apis/rbac.authorization.k8s.io/v1/clusterroles")
    assert not [item for item in rights if item["metadata"]["name"].startswith(f"muster-{world.space}-")]
