# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checkpoints in a bucket end to end, with a real S3 server: a host is lost with its disk, and another one resumes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import typing as t

from ansible_collections.muster.training.tests.e2e.playbook_world import Play, Result, until
from ansible_collections.muster.training.tests.e2e.service_world import KEYS, SECRET, ServiceWorld, Store

# argv: STEPS HOLD. Saves a folder of two files each step, reports it, and waits at step HOLD in the first attempt.
SAVER = """
import json, os, pathlib, shutil, signal, sys, time
folder = pathlib.Path(os.environ["MUSTER_CHECKPOINT_DIR"]); folder.mkdir(parents=True, exist_ok=True)
def metric(**values):
    with open(os.environ["MUSTER_METRICS_FILE"], "a") as handle:
        handle.write(json.dumps({"at": time.time(), **values}) + chr(10))
steps = sorted(int(path.name[5:]) for path in folder.glob("step-*") if "." not in path.name)
step = steps[-1] if steps else 0
if step:
    assert (folder / f"step-{step}" / "weights ü 1.bin").read_bytes() == bytes([step % 256]) * 3_000_000
print("resumed from", step, flush=True); metric(resumed_from_step=step)
while step < int(sys.argv[1]):
    step += 1
    new = folder / "new.tmp"; shutil.rmtree(new, ignore_errors=True); (new / "sub").mkdir(parents=True)
    (new / "weights ü 1.bin").write_bytes(bytes([step % 256]) * 3_000_000); (new / "sub" / "empty").touch()
    (new / "sub" / "rank").write_text(os.environ["NODE_RANK"]); new.rename(folder / f"step-{step}")
    metric(step=step); metric(checkpoint_step=step, path=str(folder / f"step-{step}"))
    if step == int(sys.argv[2]) and os.environ["MUSTER_ATTEMPT_BASE"] == "1":
        signal.pause()
"""


def job(world: ServiceWorld, steps: int, hold: int, **values: t.Any) -> dict[str, t.Any]:
    command = [sys.executable, "-I", "-S", "-c", SAVER, str(steps), str(hold)]
    return world.job(command=command, **{"checkpoints": {"binding": "store", "keep": 2, "grace_s": 5}, **values})


def bind(world: ServiceWorld, store: Store) -> None:
    result = world.play("services", env=KEYS, muster_services=[world.bind(store)])
    assert result.code == 0, result.output


def stored(world: ServiceWorld, node: str = "node-1") -> list[dict[str, t.Any]]:
    place = world.node_folder(node) / "events.jsonl"
    lines = [json.loads(line) for line in place.read_text().splitlines()] if place.exists() else []
    return [line for line in lines if line["kind"] == "checkpoint_stored"]


def train(world: ServiceWorld, wanted: dict[str, t.Any], **options: t.Any) -> Result:
    return world.play(job=wanted, env=KEYS, **options)


def start(world: ServiceWorld, wanted: dict[str, t.Any], **options: t.Any) -> Play:
    return world.start(job=wanted, env=KEYS, **options)


def lose(world: ServiceWorld, play: Play, *nodes: str) -> None:
    """Kill the controller and everything of the run, and wipe the nodes' disks."""
    play.kill(signal.SIGKILL)
    play.wait()
    world.close()
    until(lambda: not world.processes(), "the end of all processes")
    for node in nodes:
        shutil.rmtree(world.nodes / node)


def test_a_host_is_lost_with_its_disk_and_another_resumes(services: ServiceWorld, store: Store) -> None:
    bind(services, store)
    play = start(services, job(services, 9, 5, nodes=1), muster_train_hosts="node-1")
    until(lambda: any(line["detail"] == "step-5" for line in stored(services)), "the checkpoint in the bucket", 60)
    own = services.node_folder("node-1")
    assert (own / "secrets" / "checkpoints.json").stat().st_mode & 0o777 == 0o600
    lose(services, play, "node-1")
    assert any(key.endswith("/manifest.json") for key in store.keys("ckpt"))
    result = train(services, job(services, 9, 5, nodes=1), muster_train_hosts="node-2")
    assert result.code == 0, result.output
    assert "node-2: fetched checkpoint step-5 from store" in result.output
    log = (services.run_folder() / "logs" / "node-2.log").read_text()
    assert "resumed from 5" in log
    record = services.record()
    assert record["outcome"] == "succeeded" and record["problems"] == []
    folder = services.node_folder("node-2")
    assert not (folder / "secrets" / "checkpoints.json").exists()
    assert stored(services, "node-2")[-1]["detail"] == "step-9"
    kept = [key for key in store.keys("ckpt") if services.run_id in key and key.endswith("manifest.json")]
    assert 2 <= len(kept) <= 3 and all(key.startswith(f"team/{services.run_id}/node-0/slot-") for key in kept)
    everything = [path.read_bytes() for path in services.root.rglob("*") if path.is_file()]
    assert not [data for data in everything if SECRET.encode() in data]


def test_two_nodes_continue_from_what_both_have(services: ServiceWorld, store: Store) -> None:
    """One of two loses its disk; the other one's newer checkpoint is not what the gang continues from."""
    bind(services, store)
    play = start(services, job(services, 7, 4))
    for node in ("node-1", "node-2"):
        until(lambda node=node: any(line["detail"] == "step-4" for line in stored(services, node)), "step-4", 60)
    lose(services, play, "node-1")
    # What node-2 saved last never reached the bucket, and node-1 cannot have it.
    newer = services.node_folder("node-2") / "checkpoints" / "step-5"
    shutil.copytree(newer.with_name("step-4"), newer)
    os.utime(newer)
    with (services.node_folder("node-2") / "metrics.jsonl").open("a") as handle:
        handle.write(json.dumps({"checkpoint_step": 5, "path": str(newer)}) + "\n")
    result = train(services, job(services, 7, 4))
    assert result.code == 0, result.output
    assert "node-1: fetched checkpoint step-4" in result.output and "node-2: fetched" not in result.output
    for node in ("node-1", "node-2"):
        assert "resumed from 4" in (services.run_folder() / "logs" / f"{node}.log").read_text()
        rank = services.node_folder(node) / "checkpoints" / "step-7" / "sub" / "rank"
        assert rank.read_text() == node[-1].replace("1", "0").replace("2", "1")


def test_torn_copies_are_passed_over(services: ServiceWorld, store: Store) -> None:
    """The newest stored checkpoint has a damaged part, and the local copy is torn: the one before wins."""
    bind(services, store)
    play = start(services, job(services, 6, 3, nodes=1), muster_train_hosts="node-1")
    until(lambda: [x["detail"] for x in stored(services)][-2:] == ["step-2", "step-3"] or
          [x["detail"] for x in stored(services)][-1:] == ["step-3"], "step-3", 60)  # fmt: skip
    first = [line["detail"] for line in stored(services)]
    lose(services, play)
    folder = services.node_folder("node-1") / "checkpoints"
    with (folder / "step-3" / "weights ü 1.bin").open("r+b") as handle:
        handle.truncate(1000)
    damage = (
        "for o in s3.list_objects_v2(Bucket='ckpt', Prefix='team/' + sys.argv[2]).get('Contents', []):\n"
        "    if o['Key'].endswith('manifest.json'):\n"
        "        m = json.loads(s3.get_object(Bucket='ckpt', Key=o['Key'])['Body'].read())\n"
        "        if m['name'] == 'step-3':\n"
        "            part = o['Key'].replace('manifest.json', 'part-0000')\n"
        "            body = bytearray(s3.get_object(Bucket='ckpt', Key=part)['Body'].read()); body[100] ^= 1\n"
        "            s3.put_object(Bucket='ckpt', Key=part, Body=bytes(body)); print('damaged')\n"
    )
    assert "damaged" in store.script(damage, services.run_id)
    result = train(services, job(services, 6, 3, nodes=1), muster_train_hosts="node-1")
    assert result.code == 0, result.output
    assert "step-3: weights ü 1.bin is not as it was stored; taking the one before" in result.output, first
    assert "checkpoint step-3 is not used" in result.output
    log = (services.run_folder() / "logs" / "node-1.log").read_text()
    assert "resumed from 2" in log


def test_a_job_whose_binding_is_missing_or_unreachable_is_refused(services: ServiceWorld, store: Store) -> None:
    result = train(services, job(services, 1, 9))
    assert result.code != 0 and "job.checkpoints.binding: 'store' is not a binding of cluster local" in result.output
    bind(services, store)
    place = services.binding_file()
    value = services.binding()
    value["reachable_from"][1] |= {"ok": False, "problem": "no route", "mb_per_s": None, "latency_ms": None}
    place.write_text(json.dumps(value))
    result = train(services, job(services, 1, 9))
    assert result.code != 0 and len(result.errors) == 1
    assert "'store' is not reachable from all nodes: node-2 (host): no route; node-1 (host): ok" in result.errors[0]
    assert services.processes() == {} and services.left_behind() == []


def test_a_required_checkpoint_may_be_in_the_bucket_alone(services: ServiceWorld, store: Store) -> None:
    bind(services, store)
    wanted = job(services, 2, 9, nodes=1)
    wanted["checkpoints"] = {**wanted["checkpoints"], "resume": "required"}
    result = train(services, wanted, muster_train_hosts="node-1")
    assert result.code != 0 and "neither the nodes nor store have a checkpoint" in result.output, result.output
    assert services.left_behind() == []
    first = train(services, job(services, 2, 9, nodes=1), muster_train_hosts="node-1")
    assert first.code == 0, first.output
    shutil.rmtree(services.nodes / "node-1")
    shutil.rmtree(services.run_folder())
    again = train(services, {**wanted, "command": job(services, 3, 9)["command"]}, muster_train_hosts="node-1")
    assert again.code == 0, again.output
    assert "resumed from 2" in (services.run_folder() / "logs" / "node-1.log").read_text()


def test_files_come_from_the_bucket_when_the_nodes_are_gone(services: ServiceWorld, store: Store) -> None:
    """Both nodes stored their part; with their disks wiped, fetch makes files of the newest that both have."""
    bind(services, store)
    assert train(services, job(services, 3, 0)).code == 0
    for node in ("node-1", "node-2"):
        assert stored(services, node)[-1]["detail"] == "step-3"
        shutil.rmtree(services.nodes / node)
    dest = services.root / "model"
    would = services.play("fetch", env=KEYS, muster_fetch_dest=str(dest), args=["--check"])
    assert would.code == 0 and "would fetch 4 of 4 files, 3.0 MB" in would.output and not dest.exists(), would.output
    done = services.play("fetch", env=KEYS, muster_fetch_dest=str(dest), muster_train_hosts="localhost")
    assert done.code == 0 and "fetched 4 of 4 files" in done.output, done.output
    assert (dest / "step-3" / "weights ü 1.bin").read_bytes() == bytes([3]) * 3_000_000
    assert [(dest / path / "step-3" / "sub" / "rank").read_text() for path in (".", "node-2")] == ["0", "1"]
    assert (dest / "step-3" / "sub" / "empty").stat().st_size == 0
    again = services.play("fetch", env=KEYS, muster_fetch_dest=str(dest), muster_fetch_source="bucket")
    assert again.code == 0 and again.changed == 0, again.output
    without = services.play("fetch", muster_fetch_dest=str(dest), muster_fetch_source="bucket")
    assert without.code != 0 and "AWS_ACCESS_KEY_ID" in without.output, without.output
    everything = [done.output.encode(), *(path.read_bytes() for path in services.root.rglob("*") if path.is_file())]
    assert not [data for data in everything if SECRET.encode() in data or b"X-Amz-Signature" in data]


# argv: GO. A program of anyone's: it saves as torch.save does, prints, and knows nothing of this collection.
PRINTER = """
import os, pathlib, sys, time
folder = pathlib.Path(os.environ["MUSTER_CHECKPOINT_DIR"]); folder.mkdir(parents=True, exist_ok=True)
for step in range(1, 7):
    while step == 4 and not os.path.exists(sys.argv[1]):
        time.sleep(0.1)
    (folder / f"w-{step}.pt").write_bytes(bytes([step]) * 300_000)
    (folder / "train.log").write_text(f"at {step}")
    print(f"step {step} loss 1.0", flush=True); print(f"saved step {step}", flush=True)
    time.sleep(0.5 if step < 4 else 5)
"""


def test_a_program_that_only_prints_is_stored_and_what_is_not_stored_is_told(
    services: ServiceWorld, store: Store
) -> None:
    """On the screen, in the record and by exit code; fetch and report name the stored one."""
    bind(services, store)
    go = services.root / "go"
    command = [sys.executable, "-I", "-S", "-c", PRINTER, str(go)]
    metrics = {
        "step_pattern": r"^step (?P<step>\d+) loss (?P<loss>\S+)",
        "checkpoint_pattern": r"saved step (?P<step>\d+)",
    }
    wanted = services.job(
        command=command, nodes=1, metrics=metrics, checkpoints={"binding": "store", "keep": 2, "grace_s": 5}
    )
    play = start(services, wanted, muster_train_hosts="node-1")
    until(lambda: any(line["detail"] == "w-3.pt" for line in stored(services)), "the checkpoint in the bucket", 90)
    assert [line["checkpoint_step"] for line in stored(services)][-1] == 3
    place = services.node_folder("node-1") / "secrets" / "checkpoints.json"
    place.write_text(json.dumps({**json.loads(place.read_text()), "expires_at": 1.0}))
    go.touch()
    result = play.wait(120)
    words = "is not stored in store, the newest that is has step 3 (w-"
    assert result.code == 2 and words in result.output and "succeeded, not clean" in result.output, result.output
    assert "warning: checkpoint" in result.output and "the signed addresses have expired" in result.output
    record = services.record()
    assert (record["outcome"], record["checkpoint"]["step"]) == ("succeeded", 6)
    assert record["stored"] == {"step": 3, "path": "w-3.pt"} and record["unstored"] == record["problems"][0]
    own = {"muster_fetch_source": "bucket", "muster_fetch_dest": str(services.root / "fetched"), "env": KEYS}
    fetched = services.play("fetch", muster_node_hosts="node-1", **own)
    said = "checkpoint 3 is the newest that is stored in store; the last of the run, 6, is not"
    assert fetched.code == 0 and said in fetched.output, fetched.output
    assert (services.root / "fetched" / "w-3.pt").read_bytes() == bytes([3]) * 300_000
    reported = services.play("report")
    assert reported.code == 0, reported.output
    (page,) = services.run_folder().rglob("report.json")
    texts = [item["text"] for item in json.loads(page.read_text())["next"]]
    assert any("What can be fetched is w-3.pt" in text for text in texts), texts
