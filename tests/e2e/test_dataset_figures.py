# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Figures of staging on real processes and a real S3 server: speed beside rclone, and what is sent twice after cuts."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import time
import typing as t

import pytest

from ansible_collections.muster.training.tests.e2e.counting_proxy import CountingProxy
from ansible_collections.muster.training.tests.e2e.service_world import ServiceWorld, Store, rclone

# The gate is for 1024; `make test` moves less.
SIZE_MIB = int(os.environ.get("MUSTER_DATASET_MIB", "64"))
CUT_MIB = 96
CUTS = 10
MB_PER_S = 60
LINK_MB_PER_S = 125
# Two nodes and the store take both processors of a small machine.
LOADED = 4
# argv: state root, JSON {rows, urls}. Plans and stages until all is there, as the controller does.
AGENT = """
import json, pathlib, sys
from ansible_collections.muster.training.plugins.module_utils._node import host_s3
state, given = pathlib.Path(sys.argv[1]), json.loads(sys.argv[2])
about = {"dataset": "0123456789abcdef", "name": "d"}
plan = host_s3.answer({"step": "plan", "objects": given["rows"], **about}, state)
missing = plan["missing"]
while missing:
    urls = {str(number): given["urls"][number] for number in missing}
    checks = given.get("checks", {})
    answer = host_s3.answer({"step": "stage", "urls": urls, "checks": checks, "seconds": 30, **about}, state)
    assert not answer.get("problem"), answer
    missing = answer["missing"]
"""
# argv: bucket, JSON {key: MiB}, endpoint, how. Uploads whole, or in parts of 16 MiB, with CRC-32 (as the SDKs of AWS do
# unless told otherwise) or with nothing but the ETag; prints rows and signed addresses.
UPLOAD = """
import random
from botocore.config import Config as C
signer = b.get_session().create_client("s3", endpoint_url=sys.argv[4], region_name="us-east-1",
    config=C(signature_version="s3v4", s3={"addressing_style": "path"}))
bucket, how, rows, urls, checks = sys.argv[2], sys.argv[5], [], [], {}
more = {"ChecksumAlgorithm": "CRC32"} if how == "checksum" else {}
for number, (key, mib) in enumerate(json.loads(sys.argv[3]).items()):
    bodies = (random.Random(f"{key}{n}").randbytes(min(16, mib - 16 * (n - 1)) << 20) for n in range(1, -(-mib // 16) + 1))
    have = {o["Key"] for o in s3.list_objects_v2(Bucket=bucket, Prefix=key).get("Contents", [])}
    if key not in have and how == "whole":
        s3.put_object(Bucket=bucket, Key=key, Body=b"".join(bodies))
    elif key not in have:
        upload = s3.create_multipart_upload(Bucket=bucket, Key=key, **more)["UploadId"]
        parts = []
        for n, body in enumerate(bodies, 1):
            said = s3.upload_part(Bucket=bucket, Key=key, UploadId=upload, PartNumber=n, Body=body, **more)
            kept = ("ETag", "ChecksumCRC32") if more else ("ETag",)
            parts.append({"PartNumber": n, **{name: said[name] for name in kept}})
        s3.complete_multipart_upload(Bucket=bucket, Key=key, UploadId=upload, MultipartUpload={"Parts": parts})
    head = s3.head_object(Bucket=bucket, Key=key)
    rows.append([key.rpartition("/")[2], head["ContentLength"], head["ETag"]])
    place = {"Bucket": bucket, "Key": key}
    urls.append(signer.generate_presigned_url("get_object", Params=place, ExpiresIn=3000))
    asked = {**place, "ChecksumMode": "ENABLED"}
    checks[number] = [signer.generate_presigned_url("head_object", Params=asked, ExpiresIn=3000)]
print(json.dumps({"rows": rows, "urls": urls, "checks": checks}))
"""


def upload(store: Store, objects: dict[str, int], endpoint: str, how: str) -> dict[str, t.Any]:
    said = store.script(UPLOAD, "data", json.dumps(objects), endpoint, how)
    return t.cast("dict[str, t.Any]", json.loads(said))


def start_agent(state: pathlib.Path, given: dict[str, t.Any]) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", AGENT, str(state), json.dumps(given)])


def wait_all(processes: list[subprocess.Popen[bytes]]) -> tuple[float, float]:
    """Return the seconds until all have ended well, and the processor's seconds of one of them."""
    began, used = time.monotonic(), 0.0
    for process in processes:
        _pid, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 0
        used += usage.ru_utime + usage.ru_stime
    return time.monotonic() - began, used / len(processes)


@pytest.mark.parametrize(
    ("how", "link"),
    [
        pytest.param("checksum", 0, id="checksum"),
        pytest.param("whole", 0, id="whole, which rclone verifies too", marks=pytest.mark.long),
        pytest.param("etag", 0, id="nothing but an ETag of parts", marks=pytest.mark.long),
        pytest.param("etag", LINK_MB_PER_S, id="a link of 1 Gb/s", marks=pytest.mark.long),
    ],
)
def test_two_nodes_stage_nearly_as_fast_as_rclone(services: ServiceWorld, store: Store, how: str, link: int) -> None:
    """In turns, so that other load of the machine meets both; over a link that limits both, and without one.

    rclone compares the MD5 of what was uploaded whole, or by rclone. Of any other upload in parts it compares nothing.
    """
    proxy = CountingProxy(store.endpoint, link) if link else None
    seen = dataclasses.replace(store, endpoint=proxy.url) if proxy else store
    given = upload(store, {f"{how}/part-{n}": SIZE_MIB // 4 for n in range(4)}, seen.endpoint, how)
    found: dict[str, list[tuple[float, float]]] = {"stage": [], "rclone": []}
    for turn in range(1 if link else 3):
        for kind in ("stage", "rclone") if turn % 2 == 0 else ("rclone", "stage"):
            roots = [services.root / f"{kind}-{node}" for node in range(2)]
            if kind == "stage":
                processes = [start_agent(root, given) for root in roots]
            else:
                processes = [rclone(seen, "copy", f"data/{how}", str(root)) for root in roots]
            found[kind].append(wait_all(processes))
            moved = [path for root in roots for path in root.rglob("part-*") if path.is_file()]
            assert sum(path.stat().st_size for path in moved) == 2 * SIZE_MIB << 20
            for root in roots:
                shutil.rmtree(root)
    if proxy:
        proxy.close()
    wall, used = ({kind: min(row[n] for row in rows) for kind, rows in found.items()} for n in range(2))
    ratio, cheap, load = wall["rclone"] / wall["stage"], used["rclone"] / used["stage"], os.getloadavg()[0]
    speeds = ", ".join(f"{kind} {2 * SIZE_MIB / value:.0f} MiB/s" for kind, value in wall.items())
    costs = ", ".join(f"{kind} {value:.2f}" for kind, value in used.items())
    print(f"{how}, {SIZE_MIB} MiB to two nodes at load {load:.1f}: {speeds}: {ratio:.2f}")
    print(f"processor's seconds of a node: {costs}: {cheap:.2f}; all turns: {found}")
    assert ratio >= 0.1
    if link:
        assert ratio >= 0.8
    elif SIZE_MIB >= 1024 and how != "etag":
        # Time is shared with whatever else runs here, the processor's seconds are not.
        assert cheap >= 0.8 and (ratio >= 0.8 or load > LOADED)
    elif SIZE_MIB >= 1024:
        # Known, and not hidden: the MD5 of a GiB takes 1.2 s of a processor, and rclone takes none of it here.
        pytest.xfail(f"staging moves {ratio:.2f} of what rclone moves without comparing it; the gate is 0.8")


def test_after_cuts_at_random_moments_little_is_sent_twice(services: ServiceWorld, store: Store) -> None:
    proxy = CountingProxy(store.endpoint, MB_PER_S)
    given = upload(store, {"cut/big": CUT_MIB}, proxy.url, "checksum")
    state = services.root / "node"
    moments = random.Random(22)
    cuts = 0
    while cuts < CUTS:
        process = start_agent(state, given)
        before = proxy.sent
        goal = before + moments.randrange(1 << 20, (CUT_MIB // CUTS - 1) << 20)
        while process.poll() is None and proxy.sent < goal:
            time.sleep(0.001)
        assert process.poll() is None, "it ended before the cut"
        process.send_signal(signal.SIGKILL)
        process.wait()
        cuts += 1
    wait_all([start_agent(state, given)])
    proxy.close()
    (place,) = state.rglob("tree/big")
    body = b"".join(random.Random(f"cut/big{n}").randbytes(16 << 20) for n in range(1, CUT_MIB // 16 + 1))
    assert place.read_bytes() == body
    twice = proxy.sent - (CUT_MIB << 20)
    print(f"{CUTS} cuts of {CUT_MIB} MiB: {twice:,} bytes sent twice (with headers), {twice // CUTS:,} each")
    assert twice <= CUTS << 20
