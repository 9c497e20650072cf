# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Figures of stored checkpoints on a real S3 server: speed beside a plain upload, and uploaders that are killed."""

from __future__ import annotations

import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import time
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._node import pod_store
from ansible_collections.muster.training.tests.e2e.counting_proxy import CountingProxy
from ansible_collections.muster.training.tests.e2e.service_world import ServiceWorld, Store, rclone

MIB = 100
# The gate is for 50; `make test` kills fewer.
POSITIONS = 50 if os.environ.get("MUSTER_TEST_ALL") == "1" else 6
KILLED_MIB = 4
RULES: t.Final = {"format": "files", "keep": None, "required": False, "shared": False, "resume": "auto"}
# argv: bucket, prefix, endpoint. Prints the addresses of one pod's three places, as the controller gives them to it.
SIGN = """
from botocore.config import Config as C
bucket, prefix, endpoint = sys.argv[2:5]
signer = b.get_session().create_client("s3", endpoint_url=endpoint, region_name="us-east-1",
    config=C(signature_version="s3v4", s3={"addressing_style": "path"}))
def sign(verb, key):
    return signer.generate_presigned_url(verb + "_object", Params={"Bucket": bucket, "Key": prefix + key}, ExpiresIn=3000)
def slot(n):
    parts = [f"slot-{n}/part-{p:04d}" for p in range(4)]
    return {"manifest": {verb: sign(verb, f"slot-{n}/manifest.json") for verb in ("get", "put", "delete")},
            "parts": [sign("put", key) for key in parts], "fetch": [sign("get", key) for key in parts]}
print(json.dumps({"checkpoints": {"ca": None, "expires_at": 4e9, "ranks": {"0": [slot(n) for n in range(3)]}}}))
"""
# argv: file with the addresses, folder of the pod, name, seed, MiB. A pod that fetches, saves one checkpoint, stores it.
POD = """
import json, pathlib, random, sys, time
from ansible_collections.muster.training.plugins.module_utils._node import checkpoint_sync, pod_store
given, root = json.loads(pathlib.Path(sys.argv[1]).read_text()), pathlib.Path(sys.argv[2])
folder, run = root / "checkpoints", root / "run"
folder.mkdir(parents=True, exist_ok=True); run.mkdir(exist_ok=True)
rules = pod_store.restore(given, 0, 0, folder, run, json.loads(sys.argv[6]), print)
(folder / sys.argv[3]).write_bytes(random.Random(sys.argv[4]).randbytes(int(sys.argv[5]) << 20))
with (run / "metrics.jsonl").open("a") as report:
    line = {"checkpoint_step": int(sys.argv[3].partition("-")[2]), "path": str(folder / sys.argv[3])}
    report.write(json.dumps(line) + chr(10))
sync = checkpoint_sync.CheckpointSync(rules, run, "pod-0")
sync._take_reports()
began = time.monotonic()
assert sync.step()
print("stored in", time.monotonic() - began, flush=True)
"""


def sign(store: Store, prefix: str, endpoint: str) -> dict[str, t.Any]:
    return t.cast("dict[str, t.Any]", json.loads(store.script(SIGN, "ckpt", prefix, endpoint)))


def start_pod(given: pathlib.Path, root: pathlib.Path, name: str, seed: str, mib: int) -> subprocess.Popen[str]:
    argv = [sys.executable, "-c", POD, str(given), str(root), name, seed, str(mib), json.dumps(RULES)]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)


@pytest.mark.long
def test_a_checkpoint_is_stored_nearly_as_fast_as_by_a_plain_upload(services: ServiceWorld, store: Store) -> None:
    """In turns, so that other load of the machine meets both; rclone is the plain upload."""
    place = services.root / "given.json"
    place.write_text(json.dumps(sign(store, "speed/", store.endpoint)))
    seconds: dict[str, list[float]] = {"checkpoint": [], "plain": []}
    for turn in range(4):
        root = services.root / f"pod-{turn}"
        done = start_pod(place, root, f"step-{turn + 1}", str(turn), MIB)
        output, _none = done.communicate(timeout=120)
        assert done.returncode == 0, output
        seconds["checkpoint"].append(float(output.rpartition("stored in ")[2]))
        began = time.monotonic()
        rclone(store, "copyto", str(root / "checkpoints" / f"step-{turn + 1}"), f"ckpt/plain/{turn}").wait(120)
        seconds["plain"].append(time.monotonic() - began)
    ratio = min(seconds["checkpoint"]) / min(seconds["plain"])
    load = os.getloadavg()[0]
    print(f"checkpoint of {MIB} MiB: {ratio:.2f} of a plain upload, at load {load:.1f}; {seconds}")
    assert ratio <= 1.3 or load > 3


def test_an_uploader_that_is_killed_anywhere_leaves_the_last_complete_one(services: ServiceWorld, store: Store) -> None:
    """Real processes, a real store, and bytes that are counted on their way to it."""
    proxy = CountingProxy(store.endpoint)
    place = services.root / "given.json"
    place.write_text(json.dumps(sign(store, "killed/", proxy.url)))
    first = start_pod(place, services.root / "first", "step-1", "one", KILLED_MIB)
    assert first.wait(60) == 0
    moments, complete = random.Random(22), 0
    for number in range(POSITIONS):
        before = proxy.received
        process = start_pod(place, services.root / f"pod-{number}", f"step-{number + 2}", str(number), KILLED_MIB)
        goal = before + moments.randrange(1, KILLED_MIB << 20)
        while process.poll() is None and proxy.received < goal:
            time.sleep(0.0005)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        # A new pod, on another node.
        folder, run = services.root / f"new-{number}", services.root / f"run-{number}"
        folder.mkdir()
        run.mkdir()
        pod_store.restore(json.loads(place.read_text()), 0, 0, folder, run, RULES, print)
        (found,) = folder.iterdir()
        seed = "one" if found.name == "step-1" else str(int(found.name.partition("-")[2]) - 2)
        assert found.read_bytes() == random.Random(seed).randbytes(KILLED_MIB << 20)
        complete += found.name == f"step-{number + 2}"
    proxy.close()
    print(f"{POSITIONS} of {POSITIONS} killed uploaders left a complete checkpoint; {complete} had just ended")
    assert complete < POSITIONS / 2
