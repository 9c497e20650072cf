# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An owned server and rented machines: one is rented and joins, the gang grows, the provider takes it, another one comes.

The machines are the lab's. Where a machine has notice that it will be taken away, the watcher has the program save now.
"""

from __future__ import annotations

import datetime
import json
import pathlib
import time
import typing as t

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._provision.ledger.ledger_store import read_ledger
from ansible_collections.muster.training.tests.lab.k3s.operator import SERVER
from ansible_collections.muster.training.tests.lab.k3s.rented import RUN, RentedWorld, open_rented
from ansible_collections.muster.training.tests.lab.k3s.session import find_differences
from ansible_collections.muster.training.tests.lab.kube.stages import until
from ansible_collections.muster.training.tests.lab.kube_rented import let_age
from ansible_collections.muster.training.tests.support.kube_lab import NOTES

# Rank 0 saves when it is told to end, and at no other time.
SAVES_AT_ITS_END = """
import json, os, pathlib, signal, sys, time
here = pathlib.Path(os.environ["MUSTER_CHECKPOINT_DIR"])
here.mkdir(parents=True, exist_ok=True)
saved, first = here / "step", os.environ["RANK"] == "0"
step, told = int(saved.read_text()) if saved.exists() else 0, []
signal.signal(signal.SIGTERM, lambda *_: told.append(True))
def say(**values):
    if first:
        with open(os.environ["MUSTER_METRICS_FILE"], "a") as metrics:
            metrics.write(json.dumps({"at": time.time(), **values}) + "\\n")
say(resumed_from_step=step, world_size=int(os.environ["WORLD_SIZE"]))
while not (here / "finish").exists():
    step += 1
    say(step=step)
    time.sleep(0.2)
    if told:
        if first:
            saved.write_text(str(step))
            say(checkpoint_step=step, path=str(saved))
        sys.exit(143)
"""
# The metadata service of EC2, on a machine that will be taken away in two minutes.
SERVICE = """
import http.server, json, time
gone = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 120))
answers = {
    ("PUT", "/latest/api/token"): "a token",
    ("GET", "/latest/meta-data/spot/instance-action"): json.dumps({"action": "terminate", "time": gone}),
}
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        text = answers.get((self.command, self.path))
        asked = self.command == "PUT" or self.headers.get("X-aws-ec2-metadata-token") == "a token"
        self.send_response(200 if text and asked else 404)
        self.end_headers()
        self.wfile.write((text or "").encode())
    do_PUT = do_GET
http.server.ThreadingHTTPServer(("169.254.169.254", 80), Handler).serve_forever()
"""


@pytest.fixture
def world(tmp_path: pathlib.Path) -> t.Iterator[RentedWorld]:
    """Three bare machines, of which one is owned, and a provider with the other two."""
    with open_rented(tmp_path) as found:
        yield found


def test_a_gang_grows_onto_a_rented_machine_and_onto_its_replacement(world: RentedWorld) -> None:
    operator = world.operator
    for playbook in ("cluster", "cluster_jobs"):
        done = operator.play(playbook, muster_job=world.job(1))
        assert done.code == 0, done.output
    # The queue chooses islands, and who is on one is known when the fabric was looked at.
    refused = operator.play("train", muster_job=world.job(1), muster_run_id=RUN)
    assert refused.code != 0 and "no node has an island label" in refused.errors[0], refused.output
    verified = operator.play("verify_fabric", muster_job=world.job(1))
    assert verified.code == 0, verified.output
    alone = operator.start("train", muster_job=world.job(1), muster_run_id=RUN)
    assert until(lambda: world.saved() > 10 or alone.process.poll() is not None, 120) and world.saved() > 10, (
        alone.output
    )

    # One machine more, and the same run on both. The test of the fabric needs the nodes.
    assert operator.play("cancel", muster_run_id=RUN).code == 0
    alone.wait(60)
    rented = world.join_one(world.job(2))
    reached = world.saved()
    grown = operator.start("train", muster_job=world.job(2), muster_run_id=RUN)
    assert until(lambda: world.saved() > reached + 10 or grown.process.poll() is not None, 120), grown.output
    assert world.saved() > reached + 10, grown.output
    assert world.run["world_size"]["asked"] == 2 and world.read_steps(), world.run

    # The provider takes it away; its controller is gone, too. One command brings another one.
    grown.kill(9)
    grown.process.wait()
    let_age(operator.state / "ledger.jsonl")
    thing = world.rent.api.find(str(operator.plain["muster_rented"]["hosts"][rented]["muster_node"]["id"]))
    assert thing is not None
    world.rent.api.end(thing)
    world.lab.power_off("lab-2")
    reached = world.saved()
    healed = operator.play("heal", muster_run_id=RUN, muster_heal_wait=False, muster_job=world.job(2))
    assert healed.code == 0, healed.output
    world.list_rented()
    (replacement,) = operator.plain["muster_rented"]["hosts"]
    assert replacement != rented and {SERVER, replacement} <= world.ready(), healed.output
    assert until(lambda: world.saved() > reached + 10, 120), healed.output
    (world.lab.shared / "run" / RUN / "finish").touch()
    end = operator.play("train", muster_job=world.job(2), muster_run_id=RUN)
    assert end.code == 0 and world.run["outcome"] == "succeeded", end.output
    assert world.run["world_size"] == {"asked": 2, "seen": 2}
    begun = [(line["resumed_from_step"], line["world_size"]) for line in world.read_steps() if "world_size" in line]
    assert begun[0] == (0, 1) and begun[-1][1] == 2 and begun[-1][0] >= reached, begun

    # All that was rented is gone, with proof, and has left the cluster; the owned machine is as it was.
    one = world.read_processors(SERVER)
    assert one and world.read_quota() == 2 * one
    gone = operator.play("teardown")
    assert gone.code == 0 and world.rent.alive == 0, gone.output
    assert [node["metadata"]["name"] for node in operator.items("nodes")] == [SERVER], gone.output
    assert world.read_quota() == one, gone.output
    proof = json.loads((operator.state / "teardown.json").read_text())
    assert proof["residual_usd_per_hour"] == 0 and all(len(item["absent_at"]) == 2 for item in proof["leases"])
    operator.plain["muster_rented"]["hosts"] = {}
    assert operator.play("cluster_absent").code == 0
    assert find_differences(operator, world.before, SERVER) == []
    NOTES.append(
        f"grown from 1 to 2 at step {begun[1][0]}, replaced at step {begun[-1][0]}; heal {healed.seconds:.0f} s"
    )


def give_notice(world: RentedWorld, node: str) -> float:
    """Have the metadata service of a machine say that it will be taken away; return when."""
    world.lab.ask(node, "ip", "address", "add", "169.254.169.254/32", "dev", "lo")
    at = time.time()
    world.lab.ask(node, "systemd-run", "--unit=metadata", "python3", "-c", SERVICE)
    return at


def read_time(stamp: str) -> float:
    return datetime.datetime.fromisoformat(stamp).timestamp()


def test_a_notice_of_preemption_costs_no_step(world: RentedWorld) -> None:
    """Checkpoint now, drain, replacement, resume: with the playbook ``watch`` alone, beside the one that trains."""
    operator, job = world.operator, world.job(2, SAVES_AT_ITS_END, grace_s=10)
    for playbook in ("cluster", "cluster_jobs"):
        done = operator.play(playbook, muster_job=job)
        assert done.code == 0, done.output
    rented = world.join_one(job)
    let_age(operator.state / "ledger.jsonl")
    trained = operator.start("train", muster_job=job, muster_run_id=RUN)
    assert until(lambda: len(world.read_steps()) > 15 or trained.process.poll() is not None, 180), trained.output
    assert len(world.read_steps()) > 15 and world.saved() == 0, trained.output

    # The test of the fabric asks for what the gang has, which is suspended meanwhile.
    watched = operator.start("watch", muster_run_id=RUN, muster_job=job, muster_watch_s=120)
    time.sleep(10)
    noticed_at = give_notice(world, "lab-2")
    assert until(lambda: world.saved() > 0 or watched.process.poll() is not None, 120), watched.output
    saved_after, stopped_at = time.time() - noticed_at, world.saved()
    assert stopped_at > 15, watched.output
    healed = watched.wait(480)
    assert healed.code == 0, healed.output
    assert f"{rented}: EC2 will terminate it at" in watched.output
    world.list_rented()
    (replacement,) = operator.plain["muster_rented"]["hosts"]
    assert replacement != rented and world.ready() == {SERVER, replacement}, watched.output

    # The playbook that trains has followed all of it: the gang goes on from the step at which it was told to save.
    def resumed() -> bool:
        return len([line for line in world.read_steps() if line.get("step", 0) > stopped_at]) > 10

    assert until(lambda: resumed() or trained.process.poll() is not None, 180) and resumed(), trained.output
    (world.lab.shared / "run" / RUN / "finish").touch()
    assert trained.wait(120).code == 0 and world.run["outcome"] == "succeeded", trained.output
    before, *others = world.run["attempts"]
    assert before["cause"] == "preempted" and before["node"] == rented, world.run["attempts"]
    assert before["notice"]["node"] == rented and "EC2 will terminate it" in before["notice"]["detail"]
    assert noticed_at - 1 <= read_time(before["notice"]["at"]) <= noticed_at + 30
    assert before["last_step"] == stopped_at == others[-1]["resumed_from_step"], world.run["attempts"]
    assert world.run["steps_lost"] == 0 and world.run["world_size"] == {"asked": 2, "seen": 2}
    assert operator.play("report", muster_run_id=RUN).code == 0
    page = (operator.state / "runs" / RUN / "report" / "report.html").read_text()
    assert "preempted; notice at" in page and "EC2 will terminate it at" in page

    # The ledger has the old machine as lost by its notice, and its end as proved.
    leases = {lease.name: lease for lease in read_ledger(operator.state).leases.values() if lease.machine}
    assert {name: lease.state for name, lease in leases.items()} == {rented: "verified", replacement: "joined"}
    lost = [json.loads(line) for line in (operator.state / "ledger.jsonl").read_text().splitlines()]
    assert any(line["event"] == "lost" and "EC2 will terminate it" in line["reason"] for line in lost)
    assert world.rent.play("teardown", **world.home).code == 0 and world.rent.alive == 0
    NOTES.append(
        f"preempted: saved {saved_after:.0f} s after the notice at step {stopped_at}, resumed from there, "
        f"{world.run['seconds_lost']:.0f} s between the two steps; the notice, the replacement and the end of the old "
        f"machine {healed.seconds:.0f} s"
    )
