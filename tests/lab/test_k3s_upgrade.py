# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The playbook ``upgrade`` on machines of the lab: a job that trains on, a K3s that does not start, and kill -9.

Real: Kubernetes, etcd, SSH, systemd. K3s is the stand-in in two versions. With MUSTER_TEST_ALL=1 the upgrade is killed at
20 random moments, else at a few; MUSTER_LAB_KILLS says how many and MUSTER_LAB_SEED which.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import threading
import time
import typing as t

import pytest

from ansible_collections.muster.training.tests.lab import nodes
from ansible_collections.muster.training.tests.lab.k3s import machines
from ansible_collections.muster.training.tests.lab.k3s.operator import AGENT, SERVER, Operator
from ansible_collections.muster.training.tests.lab.k3s.session import open_operator
from ansible_collections.muster.training.tests.lab.k3s.site import INTERVAL, ROOT, open_site
from ansible_collections.muster.training.tests.lab.kube.stages import until
from ansible_collections.muster.training.tests.support.kube_lab import NOTES
from ansible_collections.muster.training.tests.support.node_lab import eventually

ALL = os.environ.get("MUSTER_TEST_ALL") == "1"
KILLS = int(os.environ.get("MUSTER_LAB_KILLS") or (20 if ALL else 2))
SEED = int(os.environ.get("MUSTER_LAB_SEED") or 42)
OLD, NEW = machines.VERSION, "v1.34.11+k3s1"
KEPT = "/var/lib/rancher/k3s/muster"
STEPS, GO = 600, "go"
_LIMIT_S = 900
# The example's program, at a second a step until a file is there.
SLOW = f"""
import pathlib, runpy, runtime, time
keep_pace = runtime.keep_pace
def slow(*words):
    if not pathlib.Path("{nodes.SHARED}/{GO}").exists():
        time.sleep(1)
    return keep_pace(*words)
runtime.keep_pace = slow
runpy.run_path(str(pathlib.Path(__file__).with_name("train.py")), run_name="__main__")
"""


class Cluster:
    """A cluster of one version, and the release of another one."""

    def __init__(self, operator: Operator) -> None:
        self.operator, self.lab = operator, operator.lab
        self.names = [node.name for node in operator.lab.nodes]
        self.sources = {
            OLD: operator.release,
            NEW: machines.another_release(operator.lab.folder, operator.release, NEW),
        }

    def choose(self, version: str) -> dict[str, t.Any]:
        """Return the variables of a version."""
        return {"k3s_version": version, "k3s_source": str(self.sources[version])}

    def upgrade(self, *words: str, code: int = 0, version: str = NEW, **values: t.Any) -> str:
        """Run the playbook and return what it printed, on one line."""
        play = self.operator.start("upgrade", *words, **{**self.choose(version), **values})
        result = play.wait(_LIMIT_S)
        assert result.code == code, result.output
        return " ".join(result.output.split())

    def versions(self) -> dict[str, str]:
        """What the binary of each machine says."""
        return {name: self.lab.ask(name, "k3s", "--version").split()[2] for name in self.names}

    def find_problems(self, version: str) -> list[str]:
        """Return what is other than after an upgrade that was not interrupted."""
        found = [f"{name} has {own}" for name, own in self.versions().items() if own != version]
        for node in self.operator.items("nodes"):
            name = node["metadata"]["name"]
            ready = [item["status"] for item in node["status"]["conditions"] if item["type"] == "Ready"]
            if ready != ["True"] or node["spec"].get("unschedulable"):
                found.append(f"{name} is not ready, or cordoned")
        for name in self.names:
            found += [f"{name} has {line}" for line in self.lab.ask(name, "ls", KEPT).split() if line in NOTES_LEFT]
        return found


NOTES_LEFT = ("closed", "unproven")


def read_steps(operator: Operator) -> list[int]:
    """Return the steps that the job has told of so far."""
    texts = [place.read_text() for place in (operator.state / "runs").glob("*/metrics.jsonl")]
    lines = [json.loads(line) for text in texts for line in text.splitlines()]
    return [line["step"] for line in lines if "step" in line]


@pytest.mark.torch
def test_a_job_trains_on_while_all_machines_are_upgraded() -> None:
    with open_site(3) as operator:
        cluster = Cluster(operator)
        program = operator.folder / "program"
        shutil.copytree(ROOT / "examples" / "char_lm", program)
        (program / "slow.py").write_text(SLOW)
        job = operator.values["muster_job"]
        args = [*job["args"], "--steps", str(STEPS)]
        shared = {"name": "shared", "path": nodes.SHARED, "host_path": nodes.SHARED}
        own = {"nodes": 2, "code": {"ref": str(program)}, "script": "slow.py", "mounts": [*job["mounts"], shared]}
        restart = {"max_crashes": 9, "max_lost_nodes": 9}
        operator.values["muster_job"] = {**job, **own, "args": args, "restart": restart}

        training = operator.start("site")
        until(lambda: len(read_steps(operator)) > INTERVAL or training.process.poll() is not None, 480)
        assert training.process.poll() is None, training.output
        try:
            refused = operator.play("cluster", **cluster.choose(NEW))
            assert refused.code != 0 and refused.changed == 0, refused.output
            assert "Run muster.training.upgrade" in refused.errors[0], refused.errors
            started = operator.lab.started()
            said = cluster.upgrade("--check")
            assert f"wave 1 of 3 (at most 1 agents unavailable): {SERVER}" in said, said
            assert f"{AGENT} (agent): K3s {OLD} -> {NEW}; " in said and "runs on it: char-lm" in said, said
            assert operator.lab.started() == started and set(cluster.versions().values()) == {OLD}

            began, before = time.monotonic(), max(read_steps(operator))
            cluster.upgrade()
            took = time.monotonic() - began
            assert cluster.find_problems(NEW) == []
            eventually(lambda: max(read_steps(operator)) > before, "steps after the upgrade", 120)
            assert training.process.poll() is None, "the job has not waited for the upgrade's end"
            again = cluster.upgrade()
            recap = again.partition("PLAY RECAP")[2]
            assert recap.count("changed=0") == recap.count("changed="), again
        finally:
            (operator.lab.shared / GO).touch()
            done = training.wait(_LIMIT_S)
        assert done.code == 0, done.output
        (folder,) = (operator.state / "runs").iterdir()
        record = json.loads((folder / "run.json").read_text())
        assert record["outcome"] == "succeeded", record
        assert record["steps_lost"] <= INTERVAL * len(cluster.names), record
        NOTES.append(
            f"upgrade of {len(cluster.names)} machines while a job trains: {took:.0f} s, {record['steps_lost']} steps lost "
            f"(at most {INTERVAL} a machine), outcome {record['outcome']}"
        )


def test_an_agent_gets_its_k3s_back_and_a_server_its_datastore() -> None:
    with open_operator() as operator:
        cluster = Cluster(operator)
        values = {"muster_gang_scheduling": False}
        up = operator.play("cluster", **values)
        assert up.code == 0, up.output
        operator.kubectl("create", "configmap", "before", "--from-literal=key=value")

        # K3s refuses an option that it does not have: it never becomes ready.
        bad = {AGENT: {"k3s_config": {"no-such-option": "x"}}}
        play = operator.start("upgrade", hosts=bad, **cluster.choose(NEW), k3s_wait_s=60)
        failed = play.wait(_LIMIT_S)
        said = " ".join(failed.output.split())
        assert failed.code == 2 and f"{AGENT}: " in said, said
        assert "and it has the K3s back that it had" in said, said
        assert cluster.versions() == {SERVER: NEW, AGENT: OLD}, said
        cordoned = [node for node in operator.items("nodes") if node["spec"].get("unschedulable")]
        assert cordoned == [] and operator.lab.ask(AGENT, "systemctl", "is-active", "k3s-agent") == "active"

        cluster.upgrade(k3s_wait_s=60)
        assert cluster.find_problems(NEW) == []
        operator.kubectl("create", "configmap", "after", "--from-literal=key=value")

        # As the guide says for a single server.
        data = "/var/lib/rancher/k3s/server/db"
        for words in (
            ("systemctl", "stop", "k3s"),
            ("mv", data, f"{data}.new"),
            ("cp", "--archive", f"{KEPT}/db", data),
            ("install", f"{KEPT}/k3s", "/usr/local/bin/k3s"),
            ("systemctl", "start", "k3s"),
        ):
            operator.lab.ask(SERVER, *words)
        cluster.upgrade(version=OLD, k3s_allow_downgrade=True)
        # The datastore was copied while the upgrade had closed the server.
        operator.kubectl("uncordon", SERVER)
        assert cluster.find_problems(OLD) == []
        names = {item["metadata"]["name"] for item in operator.items("configmaps", "-n", "default")}
        assert "before" in names and "after" not in names, names


class Watch:
    """Looks how many servers do not run, again and again."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster, self.most, self._over = cluster, 0, threading.Event()
        self._thread = threading.Thread(target=self._look)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._over.wait(0.5):
            states = [self._ask(name) for name in self.cluster.names]
            self.most = max(self.most, sum(state != "active" for state in states))

    def _ask(self, name: str) -> str:
        try:
            return self.cluster.lab.run(name, "systemctl", "is-active", "k3s").stdout.strip()
        except (AssertionError, subprocess.SubprocessError):
            return "unknown"


def test_killed_at_any_moment_the_same_command_comes_to_the_same_end_and_no_two_servers_are_down() -> None:
    with open_operator(size=3) as operator:
        cluster = Cluster(operator)
        operator.hosts = {
            name: {"muster_k3s_role": "server", "k3s_images": [f"{item}.tar" for item in machines.IMAGES]}
            for name in cluster.names
        }
        operator.values["muster_gang_scheduling"] = False
        # The stand-in saves no snapshots of etcd.
        operator.values["muster_upgrade_backup"] = False
        up = operator.play("cluster")
        assert up.code == 0, up.output
        began = time.monotonic()
        with Watch(cluster) as watch:
            cluster.upgrade()
            whole = time.monotonic() - began
            assert watch.most == 1, f"{watch.most} servers were down"
            moments, problems, converged = random.Random(SEED), [], 0
            for number in range(KILLS):
                version = OLD if number % 2 == 0 else NEW
                after = moments.uniform(1, whole)
                play = operator.start("upgrade", **cluster.choose(version), k3s_allow_downgrade=True)
                until(lambda play=play: play.process.poll() is not None, after)
                play.kill(signal.SIGKILL)
                play.process.wait(60)
                again = operator.start("upgrade", **cluster.choose(version), k3s_allow_downgrade=True).wait(_LIMIT_S)
                where = f"kill {number + 1} after {after:.1f} s, to {version}"
                found = [f"{where}: {line}" for line in cluster.find_problems(version)]
                if again.code:
                    found.append(f"{where}: ended with {again.code}: {again.errors}\n{again.output[-1500:]}")
                converged += not found
                problems += found
                print(f"{where}: {len(found)} problems", flush=True)
        NOTES.append(
            f"upgrade of three servers in {whole:.0f} s, killed at {KILLS} random moments (seed {SEED}): {converged} of "
            f"{KILLS} converged, at most {watch.most} server down at once"
        )
        assert problems == [] and watch.most == 1
