# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How long a checkpoint in a bucket keeps the training from its steps, beside a copy of the state in memory."""

from __future__ import annotations

import json
import os
import pathlib
import statistics
import typing as t

import pytest

from ansible_collections.muster.training.tests.e2e.service_world import KEYS, ServiceWorld, Store, seaweedfs

MIB = 100
PAIRS = 12
GATE = 1.5
SHARE = 0.3
# argv: MiB, pairs of windows. A loop of steps under torchrun that copies its state in memory and writes the copy in a
# thread. In a window it saves once; every second window's checkpoint is reported, so that it is stored in the bucket:
# the two kinds differ in that alone, and meet the same load of the machine. Prints seconds.
PROGRAM = '''
import json, os, pathlib, sys, threading, time
import torch
torch.set_num_threads(1)
size, pairs = int(sys.argv[1]) << 20, int(sys.argv[2])
folder = pathlib.Path(os.environ["MUSTER_CHECKPOINT_DIR"]); folder.mkdir(parents=True, exist_ok=True)
def metric(**values):
    with open(os.environ["MUSTER_METRICS_FILE"], "a") as handle:
        handle.write(json.dumps({"at": time.time(), **values}) + chr(10))
state, copy = torch.randint(0, 255, (size,), dtype=torch.uint8), torch.zeros(size, dtype=torch.uint8)
a = torch.randn(256, 256)
def step():
    global a
    for _ in range(4):
        a = torch.tanh(a @ a.T / 16)
def times():
    """Seconds that this thread ran, and that it waited for a processor: the kernel's own account of it."""
    ran, queued, _slices = pathlib.Path("/proc/thread-self/schedstat").read_text().split()
    return int(ran) / 1e9, int(queued) / 1e9
def write(number, stored):
    place = folder / f"step-{number}"
    with open(folder / "new.tmp", "wb") as handle:
        handle.write(memoryview(copy.numpy()))
    os.rename(folder / "new.tmp", place)
    if stored:
        metric(checkpoint_step=number, path=str(place))
    old = folder / f"step-{number - 4}"
    old.unlink(missing_ok=True)
for _ in range(50): step()
began = time.perf_counter()
for _ in range(50): step()
steps = max(50, int(2.5 / ((time.perf_counter() - began) / 50)))
metric(step=1)
for window in range(2 * pairs):
    stored = window // 2 % 2 == window % 2
    began = time.perf_counter()
    copy.copy_(state)
    copied = time.perf_counter() - began
    writer = threading.Thread(target=write, args=(window + 2, stored)); writer.start()
    ran, queued = times()
    started = time.perf_counter()
    for _ in range(steps): step()
    took, then = time.perf_counter() - started, times()
    ran, queued = then[0] - ran, then[1] - queued
    writer.join()
    row = {"stored": stored, "copy": copied, "ran": ran, "queued": queued, "asleep": took - ran - queued}
    print("window", json.dumps(row), flush=True)
'''


@pytest.mark.long
@pytest.mark.torch
def test_the_training_goes_on_while_its_checkpoint_is_stored(
    services: ServiceWorld, tmp_path: pathlib.Path, torch_python: str
) -> None:
    """Steps wait for nothing while their checkpoint is stored: with the copy, no more than 1.5 copies of the state.

    The kernel's account of the thread tells waiting from queueing for a processor. In a cluster the store's server is
    another machine: here it has one processor, and never more than that.
    """
    processors = sorted(os.sched_getaffinity(0))
    with seaweedfs(tmp_path / "seaweedfs", processors=processors[-1:] if processors[1:] else ()) as store:
        _measure(services, store, torch_python)


def _measure(services: ServiceWorld, store: Store, torch_python: str) -> None:
    bound = services.play("services", env=KEYS, muster_services=[services.bind(store)])
    assert bound.code == 0, bound.output
    (services.root / "code").mkdir()
    (services.root / "code" / "train.py").write_text(PROGRAM)
    job = {
        "name": "e2e",
        "nodes": 1,
        "launcher": "torchrun",
        "script": "train.py",
        "args": [MIB, PAIRS],
        "code": {"ref": str(services.root / "code")},
        "checkpoints": {"binding": "store", "format": "files", "keep": 3},
    }
    result = services.play(
        job=job, env=KEYS, limit_s=400, muster_training_python=torch_python, muster_train_hosts="node-1"
    )
    assert result.code == 0, result.output
    lines = (services.run_folder() / "logs" / "node-1.log").read_text().splitlines()
    rows = [json.loads(line.partition("window ")[2]) for line in lines if "window {" in line]
    events = (services.node_folder("node-1") / "events.jsonl").read_text().splitlines()
    stored = [item for item in map(json.loads, events) if item["kind"] == "checkpoint_stored"]
    assert len(rows) == 2 * PAIRS and len(stored) >= PAIRS / 2, (len(rows), stored)
    copy = statistics.median(row["copy"] for row in rows)
    spent, each = (statistics.median(item[name] for item in stored) for name in ("processor_s", "seconds"))
    print(f"{len(stored)} checkpoints of {MIB} MiB: {each:.2f} s on its way, {spent:.2f} s of the uploader's processor")
    asleep, queued = longer(rows, "asleep"), longer(rows, "queued")
    ratio = (copy + max(0.0, asleep)) / copy
    print(f"a copy of the state: {copy * 1e3:.1f} ms; beside an upload the steps waited {asleep * 1e3:+.1f} ms longer:")
    print(f"blocked {ratio:.2f} of a copy, gate {GATE}; for a processor they queued {queued * 1e3:+.0f} ms longer")
    assert ratio <= GATE
    # Where no processor is free, the uploader takes a tenth of one, and the store here some more.
    assert queued <= SHARE * each


def longer(rows: list[dict[str, t.Any]], kind: str) -> float:
    """Return by how much the windows with an upload are longer: the median of the neighbours' differences."""
    pairs = zip(rows[::2], rows[1::2], strict=True)
    return statistics.median(float(one[kind] - two[kind]) * (1 if one["stored"] else -1) for one, two in pairs)
