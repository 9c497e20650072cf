# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pods and their buckets: staged once, fetched before a start, stored while the program runs, damaged copies passed over."""

from __future__ import annotations

import concurrent.futures
import gzip
import json
import os
import pathlib
import random
import signal
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._node import (
    checkpoint_store,
    checkpoint_sync,
    dataset_stage,
    pod_preflight,
    pod_store,
)
from ansible_collections.muster.training.tests.fakes import object_store
from ansible_collections.muster.training.tests.support.node_lab import eventually
from ansible_collections.muster.training.tests.unit.plugins.module_utils._node.pod_lab import PodLab

Dict = dict[str, t.Any]
RULES: Dict = {"format": "files", "keep": None, "required": False, "shared": False, "resume": "auto"}


@pytest.fixture
def server() -> t.Iterator[object_store.ObjectStore]:
    with object_store.running() as found:
        yield found


def addresses(server: object_store.ObjectStore, ranks: int) -> Dict:
    def slot(rank: int, number: int) -> Dict:
        base = f"run/node-{rank}/slot-{number}"
        manifest = dict.fromkeys(("get", "put", "delete"), server.address(f"{base}/manifest.json"))
        parts = [server.address(f"{base}/part-{part:04d}") for part in range(4)]
        return {"manifest": manifest, "parts": parts, "fetch": parts}

    rows = {str(rank): [slot(rank, number) for number in range(3)] for rank in range(ranks)}
    return {"checkpoints": {"ca": None, "expires_at": 4e9, "ranks": rows}}


class Pod:
    """One pod: its folders are new, as those of a pod that replaces a lost one."""

    def __init__(self, root: pathlib.Path, rank: int) -> None:
        self.rank, self.folder, self.run = rank, root / "checkpoints", root / "run"
        self.folder.mkdir(parents=True)
        self.run.mkdir()
        self.said: list[str] = []

    def restore(self, given: Dict, attempt: int = 1, **rules: t.Any) -> Dict:
        given_rules = {**RULES, **rules}
        return pod_store.restore(given, self.rank, attempt, self.folder, self.run, given_rules, self.said.append)

    def save(self, rules: Dict, name: str, content: bytes, stored: bool = True) -> None:
        (self.folder / name).write_bytes(content)
        line = {"checkpoint_step": int(name[5:-3]), "path": str(self.folder / name)}
        with (self.run / "metrics.jsonl").open("a") as report:
            report.write(json.dumps(line) + "\n")
        if stored:
            sync = checkpoint_sync.CheckpointSync(rules, self.run, f"pod-{self.rank}")
            sync._take_reports()
            assert sync.step()


def test_a_pod_that_replaces_another_continues_from_the_bucket(
    tmp_path: pathlib.Path, server: object_store.ObjectStore
) -> None:
    given = addresses(server, 1)
    first = Pod(tmp_path / "first", 0)
    rules = first.restore(given)
    assert pathlib.Path(rules["store"]).stat().st_mode & 0o777 == 0o600
    first.save(rules, "step-10.pt", b"ten" * 1000)
    first.save(rules, "step-20.pt", b"twenty" * 1000)
    second = Pod(tmp_path / "second", 0)
    second.restore(given)
    assert (second.folder / "step-20.pt").read_bytes() == b"twenty" * 1000
    assert "fetched checkpoint step-20.pt" in second.said[0]
    second.said.clear()
    second.restore(given)
    assert second.said == []


def test_pods_take_what_all_have(tmp_path: pathlib.Path, server: object_store.ObjectStore) -> None:
    given = addresses(server, 2)
    pods = [Pod(tmp_path / f"old-{rank}", rank) for rank in range(2)]
    rules = [pod.restore(given) for pod in pods]
    for pod, rule in zip(pods, rules, strict=True):
        pod.save(rule, "step-10.pt", b"10" * (pod.rank + 1))
    pods[0].save(rules[0], "step-20.pt", b"20")
    new = [Pod(tmp_path / f"new-{rank}", rank) for rank in range(2)]
    for pod in new:
        pod.restore(given)
        assert [item.name for item in pod.folder.iterdir()] == ["step-10.pt"]
        assert (pod.folder / "step-10.pt").read_bytes() == b"10" * (pod.rank + 1)
    # A container that is started again has what it saved: only what all have stays.
    pods[0].restore(given)
    assert [item.name for item in pods[0].folder.iterdir() if not item.name.startswith(".")] == ["step-10.pt"]


def test_pods_that_save_nothing_take_what_the_only_one_saved(
    tmp_path: pathlib.Path, server: object_store.ObjectStore
) -> None:
    """A program that saves on rank 0 alone begins at one step on all ranks; parts of one checkpoint are no copies."""
    given = addresses(server, 3)
    first = Pod(tmp_path / "old", 0)
    rules = first.restore(given)
    first.save(rules, "step-10.pt", b"ten")
    first.save(rules, "step-20.pt", b"twenty")
    for rank in range(3):
        pod = Pod(tmp_path / f"new-{rank}", rank)
        own = pod.restore(given, attempt=2)
        assert [(item.name, item.read_bytes()) for item in pod.folder.iterdir()] == [("step-20.pt", b"twenty")]
        assert checkpoint_sync.CheckpointSync(own, pod.run, "n").step() is False, "it is stored already"
    parts = Pod(tmp_path / "parts", 1)
    parts.restore(given, attempt=2, format="dcp")
    assert list(parts.folder.iterdir()) == []


def test_what_a_pod_stored_in_the_same_attempt_is_nothing_to_begin_from(
    tmp_path: pathlib.Path, server: object_store.ObjectStore
) -> None:
    """A pod may have saved before another one of its gang begins, which would begin at another step."""
    given = addresses(server, 2)
    first, late = Pod(tmp_path / "first", 0), Pod(tmp_path / "late", 1)
    first.save(first.restore(given), "step-10.pt", b"ten")
    late.restore(given)
    assert list(late.folder.iterdir()) == [] and late.said == []
    # In the next attempt, too: what was there before it counts, and what it has stored itself does not.
    again, later = Pod(tmp_path / "again", 0), Pod(tmp_path / "later", 1)
    rules = again.restore(given, attempt=2)
    again.save(rules, "step-20.pt", b"twenty")
    later.restore(given, attempt=2)
    assert [item.name for item in later.folder.iterdir()] == ["step-10.pt"]


def test_a_damaged_copy_is_passed_over(tmp_path: pathlib.Path, server: object_store.ObjectStore) -> None:
    given = addresses(server, 1)
    pod = Pod(tmp_path / "first", 0)
    rules = pod.restore(given)
    pod.save(rules, "step-10.pt", b"ten")
    pod.save(rules, "step-20.pt", b"twenty")
    broken = next(key for key, data in server.objects.items() if data == b"twenty")
    server.objects[broken] = b"tWenty"
    new = Pod(tmp_path / "second", 0)
    new.restore(given)
    assert [item.name for item in new.folder.iterdir()] == ["step-10.pt"]
    assert "taking the one before" in new.said[0]


def test_of_several_pods_the_one_with_a_damaged_copy_has_all_start_again(
    tmp_path: pathlib.Path, server: object_store.ObjectStore
) -> None:
    given = addresses(server, 2)
    for rank in range(2):
        pod = Pod(tmp_path / f"old-{rank}", rank)
        rules = pod.restore(given)
        for name in ("step-10.pt", "step-20.pt"):
            pod.save(rules, name, f"{name} {rank}".encode())
    broken = next(key for key, data in server.objects.items() if data == b"step-20.pt 1")
    server.objects[broken] = b"step-20.pt 2"
    pods = [Pod(tmp_path / f"new-{rank}", rank) for rank in range(2)]
    pods[0].restore(given)
    with pytest.raises(pod_preflight.PodRefusal, match="step-20.pt is damaged"):
        pods[1].restore(given)
    for rank in range(2):
        again = Pod(tmp_path / f"again-{rank}", rank)
        again.restore(given)
        assert [item.name for item in again.folder.iterdir()] == ["step-10.pt"]


def test_cut_at_random_bytes_the_last_complete_one_is_taken(
    tmp_path: pathlib.Path, server: object_store.ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = random.Random(7)
    monkeypatch.setattr(checkpoint_store, "PART_BYTES", 10_000)
    given = addresses(server, 1)
    pod = Pod(tmp_path / "first", 0)
    rules = pod.restore(given)
    pod.save(rules, "step-1.pt", content.randbytes(30_000))
    whole = dict(server.objects)
    pod.save({**rules, "store": str(tmp_path / "none")}, "step-2.pt", content.randbytes(30_000), stored=False)
    real = checkpoint_store.read_range
    for number in range(6):
        left = [content.randrange(30_000)]

        def cut(*words: t.Any, left: list[int] = left) -> t.Iterator[bytes]:
            for data in real(*words):
                if len(data) > left[0]:
                    raise KeyboardInterrupt
                left[0] -= len(data)
                yield data

        server.objects.clear()
        server.objects.update(whole)
        monkeypatch.setattr(checkpoint_store, "read_range", cut)
        with pytest.raises(KeyboardInterrupt):
            sync = checkpoint_sync.CheckpointSync(rules, pod.run, "pod")
            sync._take_reports()
            sync.step()
        monkeypatch.setattr(checkpoint_store, "read_range", real)
        new = Pod(tmp_path / f"new-{number}", 0)
        new.restore(given)
        assert (new.folder / "step-1.pt").read_bytes() == (pod.folder / "step-1.pt").read_bytes()
        assert [item.name for item in new.folder.iterdir()] == ["step-1.pt"]


def test_never_fetches_nothing_and_pods_without_a_place_store_nothing(
    tmp_path: pathlib.Path, server: object_store.ObjectStore
) -> None:
    given = addresses(server, 1)
    pod = Pod(tmp_path / "first", 0)
    pod.save(pod.restore(given), "step-10.pt", b"ten")
    fresh = Pod(tmp_path / "second", 0)
    assert "store" in fresh.restore(given, resume="never") and list(fresh.folder.iterdir()) == []
    assert pod_store.restore(given, 1, 1, fresh.folder, fresh.run, RULES, print) == RULES
    assert pod_store.restore({}, 0, 1, fresh.folder, fresh.run, RULES, print) == RULES


def test_a_dataset_is_staged_into_the_pod_once(tmp_path: pathlib.Path, server: object_store.ObjectStore) -> None:
    server.objects |= {"a.txt": b"aaa", "sub/b.txt": b"b" * 5000}
    names = ["a.txt", "sub/b.txt"]
    rows = [[name, len(server.objects[name]), server.etag(name)] for name in names]
    item = {
        "name": "text",
        "dataset": "d1",
        "ca": None,
        "objects": rows,
        "urls": [server.address(name) for name in names],
    }
    said: list[str] = []
    pod_store.stage({"datasets": [item]}, tmp_path, said.append)
    assert (tmp_path / "data" / "text" / "sub" / "b.txt").read_bytes() == b"b" * 5000 and "2 objects" in said[0]
    asked = len(server.asked)
    pod_store.stage({"datasets": [item]}, tmp_path, said.append)
    assert len(server.asked) == asked
    gone = {**item, "dataset": "d2", "urls": [server.address("none"), server.address("none")]}
    with pytest.raises(pod_preflight.PodRefusal, match="dataset text: object"):
        pod_store.stage({"datasets": [gone]}, tmp_path / "other", said.append)
    assert dataset_stage.FOLDER == "datasets"


def test_pods_of_a_node_stage_a_dataset_once_into_a_folder_that_they_share(
    tmp_path: pathlib.Path, server: object_store.ObjectStore
) -> None:
    """Four pods at once, then a later run: each object is sent once, and each pod has all of it."""
    server.objects |= {f"part-{number}": os.urandom(200_000) for number in range(6)}
    server.delay_s = 0.02
    names = sorted(server.objects)
    item = {
        "name": "text",
        "dataset": "d1",
        "ca": None,
        "cache": str(tmp_path / "node" / "cache"),
        "objects": [[name, len(server.objects[name]), server.etag(name)] for name in names],
        "urls": [server.address(name) for name in names],
    }
    said: list[str] = []
    with concurrent.futures.ThreadPoolExecutor() as pool:
        pods = [tmp_path / f"pod-{number}" for number in range(4)]
        list(pool.map(lambda pod: pod_store.stage({"datasets": [item]}, pod, said.append), pods))
    pod_store.stage({"datasets": [item]}, tmp_path / "later", said.append)
    assert len([path for method, path, _range in server.asked if method == "GET"]) == len(names)
    for pod in (*pods, tmp_path / "later"):
        found = {path.name: path.read_bytes() for path in (pod / "data" / "text").iterdir()}
        assert found == server.objects
    (tmp_path / "file").touch()
    bad = {**item, "cache": str(tmp_path / "file")}
    with pytest.raises(pod_preflight.PodRefusal, match=r"dataset text: .*file/datasets.* cannot be written: Not a dir"):
        pod_store.stage({"datasets": [bad]}, tmp_path / "other", said.append)


def test_the_addresses_are_read_or_the_pod_says_that_they_are_not_there(tmp_path: pathlib.Path) -> None:
    place = tmp_path / "store"
    place.write_bytes(gzip.compress(json.dumps({"datasets": []}).encode()))
    assert pod_store.read({"store": str(place)}) == {"datasets": []} and pod_store.read({}) == {}
    with pytest.raises(pod_preflight.PodRefusal, match="are not in the pod"):
        pod_store.read({"store": str(tmp_path / "none")})


def test_a_pod_that_is_killed_is_continued_by_another_from_the_bucket(
    tmp_path: pathlib.Path, server: object_store.ObjectStore
) -> None:
    """Real processes of the pods' program: data from the bucket, a checkpoint into it, and out of it again."""
    server.objects |= {"text/a.txt": b"a line of data"}
    text = {
        "name": "text",
        "dataset": "d1",
        "ca": None,
        "objects": [["a.txt", 14, server.etag("text/a.txt")]],
        "urls": [server.address("text/a.txt")],
    }
    place = tmp_path / "store"
    place.write_bytes(gzip.compress(json.dumps({**addresses(server, 1), "datasets": [text]}).encode()))
    save = 'printf "{\\"checkpoint_step\\": 5, \\"path\\": \\"$1/step-5.pt\\"}\\n" >> metrics.jsonl; sleep 60'
    programs = (
        f'cat data/text/a.txt; echo; sleep 1; echo five > "$1/step-5.pt"; {save}',
        'cat "$1/step-5.pt"; echo end',
    )
    lines = []
    for number, program in enumerate(programs):
        root = tmp_path / f"pod-{number}"
        root.mkdir()
        lab = PodLab(root)
        folder = str(root / "checkpoints")
        spec = lab.spec(0, ["sh", "-c", program, "sh", folder], checkpoints=RULES, store=str(place))
        process = lab.start(spec)
        if number == 0:
            eventually(lambda: any(key.endswith("manifest.json") for key in server.objects), "it is stored")
            os.killpg(process.pid, signal.SIGKILL)
        end = lab.end(process)
        lab.close()
        lines.append(end.text)
    assert "a line of data" in lines[0] and "five\nend" in lines[1] and end.code == 0
    assert "fetched checkpoint step-5.pt from the bucket" in lines[1]
