# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Datasets from a bucket end to end, with a real S3 server: staged once a node, streamed, or refused by name."""

from __future__ import annotations

import json
import sys
import typing as t

import pytest

from ansible_collections.muster.training.tests.e2e.playbook_world import Result
from ansible_collections.muster.training.tests.e2e.service_world import ACCESS, KEYS, SECRET, ServiceWorld, Store

# Prints every file of the dataset with its digest, and what of the environment a streaming program reads.
READER = """
import hashlib, json, os, pathlib
place = os.environ["MUSTER_DATASET_TEXT"]
found = {}
for top, _folders, names in os.walk(place):
    for name in names:
        path = pathlib.Path(top, name)
        found[str(path.relative_to(place))] = hashlib.sha256(path.read_bytes()).hexdigest()[:8]
keys = ("AWS_ENDPOINT_URL", "AWS_REGION", "AWS_CA_BUNDLE")
about = {"place": place, "files": found, **{key: os.environ.get(key) for key in keys}}
about["secret"] = len(os.environ.get("AWS_SECRET_ACCESS_KEY", ""))
print("read", json.dumps(about), flush=True)
"""
# argv: bucket, JSON {key: [size, seed, size of parts or nothing]}; prints digests.
FILL = """
import hashlib, random
for key, (size, seed, *parts) in json.loads(sys.argv[3]).items():
    body, place = random.Random(seed).randbytes(size), {"Bucket": sys.argv[2], "Key": key}
    if parts:
        upload = {**place, "UploadId": s3.create_multipart_upload(**place)["UploadId"]}
        cut = [body[first : first + parts[0]] for first in range(0, size, parts[0])]
        tags = [s3.upload_part(**upload, PartNumber=n, Body=part)["ETag"] for n, part in enumerate(cut, 1)]
        done = [{"ETag": tag, "PartNumber": n} for n, tag in enumerate(tags, 1)]
        s3.complete_multipart_upload(**upload, MultipartUpload={"Parts": done})
    else:
        s3.put_object(**place, Body=body)
    print(hashlib.sha256(body).hexdigest()[:8])
"""


def fill(store: Store, objects: t.Mapping[str, tuple[int, ...]]) -> list[str]:
    return store.script(FILL, "data", json.dumps(objects)).split()


def job(world: ServiceWorld, *datasets: dict[str, t.Any], **values: t.Any) -> dict[str, t.Any]:
    command = [sys.executable, "-I", "-S", "-c", READER]
    return world.job(
        command=command, datasets=[{"name": "text", "binding": "store", **item} for item in datasets], **values
    )


def train(world: ServiceWorld, wanted: dict[str, t.Any], **options: t.Any) -> Result:
    return world.play(job=wanted, env=KEYS, **options)


def bind(world: ServiceWorld, store: Store, **changes: t.Any) -> None:
    result = world.play("services", env=KEYS, muster_services=[world.bind(store, **changes)])
    assert result.code == 0, result.output


def seen(world: ServiceWorld, node: str = "node-1") -> dict[str, t.Any]:
    lines = (world.run_folder() / "logs" / f"{node}.log").read_text().splitlines()
    return t.cast(
        "dict[str, t.Any]", json.loads(next(line for line in lines if "read {" in line).partition("read ")[2])
    )


def test_a_dataset_is_staged_once_a_node_with_its_names(services: ServiceWorld, store: Store) -> None:
    """Names with spaces and unicode, an empty object, one of several segments; a folder's own object is left out."""
    objects = {
        "names/a b/ü 日本.txt": (5_000, 1),
        "names/a b/100%+&=?#.bin": (70_000, 2),
        "names/empty": (0, 3),
        "names/sub/big": (70 << 20, 4),
        # Parts of a size that no common program uses: the store tells it.
        "names/sub/odd": (18 << 20, 7, 11 << 20),
        "names/folder/": (0, 5),
        "names-other/x": (10, 6),
    }
    digests = fill(store, objects)
    bind(services, store)
    wanted = job(services, {"prefix": "names"})
    result = train(services, wanted)
    assert result.code == 0, result.output
    expected = {key.removeprefix("names/"): digest for key, digest in zip(objects, digests, strict=True)}
    del expected["folder/"], expected["names-other/x"]
    for node in ("node-1", "node-2"):
        assert seen(services, node)["files"] == expected
    assert "dataset text: 5 objects, 88.1 MiB; staging 176.1 MiB to node-1, node-2" in result.output
    assert "compared by size" not in result.output
    for place in services.root.rglob("record.jsonl"):
        rows = {row["path"]: row for row in map(json.loads, place.read_text().splitlines())}
        assert rows["sub/big"]["digest"].startswith("crc32/0:") and rows["sub/odd"]["digest"].startswith(
            "md5/11534336:"
        )
        assert len(rows) == 5 and all(row["verified"] for row in rows.values())
    again = train(services, job(services, {"prefix": "names"}, env={"OTHER": "run"}), muster_run_id="other")
    assert again.code == 0 and "staging" not in again.output, again.output
    everything = [path for path in services.root.rglob("*") if path.is_file()]
    assert not [path for path in everything if b"X-Amz-Signature" in path.read_bytes()]


def test_the_prefix_may_be_one_object_of_a_list_of_several_pages(services: ServiceWorld, store: Store) -> None:
    (digest,) = fill(store, {"one/train.bin": (9_000, 1)})
    fill(store, {f"many/{n:04}": (3, n) for n in range(1205)})
    bind(services, store)
    result = train(services, job(services, {"prefix": "one/train.bin"}, nodes=1), muster_train_hosts="node-1")
    assert result.code == 0 and seen(services)["files"] == {"train.bin": digest}, result.output
    result = train(services, job(services, {"prefix": "many"}, nodes=1), muster_train_hosts="node-1", muster_run_id="m")
    assert result.code == 0 and "dataset text: 1205 objects" in result.output, result.output


def test_a_streamed_dataset_is_an_address_with_credentials(services: ServiceWorld, store: Store) -> None:
    bind(services, store)
    result = train(services, job(services, {"prefix": "names", "mode": "stream"}))
    assert result.code == 0, result.output
    about = seen(services)
    assert about["place"] == "s3://data/names" and about["files"] == {} and about["secret"] == len(SECRET)
    assert about["AWS_ENDPOINT_URL"] == store.endpoint and about["AWS_REGION"] == "us-east-1"
    everything = [path.read_bytes() for path in services.root.rglob("*") if path.is_file()]
    assert not [data for data in everything if SECRET.encode() in data or ACCESS.encode() in data]


def test_a_mounted_dataset_must_be_on_every_node(services: ServiceWorld) -> None:
    place = services.root / "mounted"
    wanted = services.job(
        command=[sys.executable, "-I", "-S", "-c", READER],
        datasets=[{"name": "text", "mode": "mount", "path": str(place)}],
    )
    result = train(services, wanted)
    assert result.code != 0 and f"cannot read {place}" in result.output, result.output
    place.mkdir()
    (place / "x").write_text("1")
    result = train(services, wanted)
    assert result.code == 0 and set(seen(services)["files"]) == {"x"}, result.output


@pytest.mark.parametrize(
    ("dataset", "words"),
    [
        ({"prefix": "nams"}, ["job.datasets.text", "no objects begin with 'nams'"]),
        ({"binding": "stor"}, ["did you mean 'store'?"]),
        ({"prefix": "a/../b"}, ["job.datasets.text.prefix", "must not contain '..'"]),
        ({"path": "x"}, ["job.datasets.text.path", "cannot be used with binding"]),
        (
            {"mode": "mount", "path": "/x"},
            ["job.datasets.text.binding", "is on no mount of the job", "a bucket is staged"],
        ),
        ({"read_only": False}, ["job.datasets.text.read_only"]),
    ],
    ids=["prefix", "binding", "dotdot-prefix", "path", "mount", "written"],
)
def test_what_is_no_dataset_is_named_and_nothing_starts(
    services: ServiceWorld, store: Store, dataset: t.Any, words: list[str]
) -> None:
    bind(services, store)
    result = train(services, job(services, dataset))
    assert result.code != 0 and len(result.errors) == 1, result.output
    assert not [word for word in words if word not in result.errors[0]], result.errors
    assert services.processes() == {} and services.left_behind() == []
    assert "X-Amz" not in result.output and SECRET not in result.output


def test_a_bucket_that_was_deleted_after_the_bind_is_named(services: ServiceWorld, store: Store) -> None:
    store.script("s3.create_bucket(Bucket='shortlived')")
    bind(services, store, resources=[{"purpose": "datasets", "ref": "shortlived"}])
    store.script("s3.delete_bucket(Bucket='shortlived')")
    result = train(services, job(services, {"prefix": "x"}))
    assert result.code != 0 and "the bucket does not exist" in result.errors[0], result.output
    assert "shortlived" not in store.buckets() and services.left_behind() == []
