# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Storing checkpoints beside a program: the newest, once, in the slot with the oldest; failures become events."""

from __future__ import annotations

import json
import os
import pathlib
import time
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._node import (
    checkpoint_reports,
    checkpoint_store,
    checkpoint_sync,
    host_agent,
)
from ansible_collections.muster.training.tests.fakes import object_store


class Node:
    """A run's folder on a node, with its checkpoints and the addresses of three slots."""

    def __init__(self, root: pathlib.Path, server: object_store.ObjectStore) -> None:
        self.server, self.root = server, root
        self.run = root / "n" / "runs" / "r"
        self.folder = self.run / "checkpoints"
        self.folder.mkdir(parents=True)
        self.write_addresses()

    def slots(self) -> list[dict[str, t.Any]]:
        found = []
        for slot in range(3):
            manifest = self.server.address(f"{slot}/manifest.json")
            parts = [self.server.address(f"{slot}/part-{number}") for number in range(4)]
            found.append({"manifest": {"get": manifest, "put": manifest, "delete": manifest}, "parts": parts})
        return found

    def write_addresses(self, lasts_s: float = 100.0) -> None:
        value = {"ca": None, "expires_at": time.time() + lasts_s, "slots": self.slots()}
        (self.run / "addresses.json").write_text(json.dumps(value))

    def rules(self, **changes: t.Any) -> dict[str, t.Any]:
        place = str(self.run / "addresses.json")
        return {
            "folder": str(self.folder),
            "format": "files",
            "store": place,
            "shared": False,
            "first": True,
            **changes,
        }

    def save(self, step: int, at: int) -> None:
        place = self.folder / f"step-{step}"
        place.write_text(str(step))
        os.utime(place, ns=(at, at))
        with (self.run / "metrics.jsonl").open("a") as handle:
            handle.write(json.dumps({"checkpoint_step": step, "path": str(place)}) + "\n")

    def sync(self) -> checkpoint_sync.CheckpointSync:
        """Return a sync that is stepped by hand and knows what was reported."""
        found = checkpoint_sync.CheckpointSync(self.rules(), self.run, "n")
        found._take_reports()
        return found

    def events(self) -> list[tuple[str, str]]:
        place = self.run / "events.jsonl"
        lines = [json.loads(line) for line in place.read_text().splitlines()] if place.exists() else []
        return [(line["kind"], line["detail"]) for line in lines]

    def names(self) -> dict[str, str]:
        found = {key: body for key, body in self.server.objects.items() if key.endswith("manifest.json")}
        return {key[0]: json.loads(body)["name"] for key, body in found.items()}

    def ask(self, step: str, **values: t.Any) -> dict[str, t.Any]:
        about = {"op": "s3", "node": "n", "state_root": str(self.root), "run_id": "r", "step": step, "format": "files"}
        return host_agent.answer_request({**about, "folder": str(self.folder), **values})

    def candidates(self) -> dict[str, t.Any]:
        return self.ask("candidates", manifests=[slot["manifest"]["get"] for slot in self.slots()])


@pytest.fixture
def node(tmp_path: pathlib.Path) -> t.Iterator[Node]:
    with object_store.running() as server:
        yield Node(tmp_path, server)


def test_the_newest_is_stored_once_and_takes_the_place_of_the_oldest(node: Node) -> None:
    for step in range(1, 6):
        node.save(step, step)
        sync = node.sync()
        assert sync.step() and not sync.step()
    assert node.names() == {"0": "step-4", "1": "step-5", "2": "step-3"}
    assert node.events() == [("checkpoint_stored", f"step-{step}") for step in range(1, 6)]


def test_what_was_not_reported_is_not_stored(node: Node) -> None:
    (node.folder / "notes").write_text("x")
    assert not node.sync().step() and node.server.objects == {}


def printing(node: Node, *steps: int, at: float | None = None) -> None:
    """Note that the program printed that it has saved these steps."""
    with (node.run / "printed.jsonl").open("a") as handle:
        handle.writelines(json.dumps({"at": at or time.time(), "checkpoint_step": step}) + "\n" for step in steps)


def look(sync: checkpoint_sync.CheckpointSync) -> bool:
    """Look twice, as what is still written is not stored, then store."""
    sync._take_reports()
    sync._take_reports()
    return sync.step()


@pytest.mark.parametrize("name", ["w-{}.pt", "checkpoint-{}", "last.pt", "model_step000{}.bin"])
def test_what_was_printed_is_stored_with_its_step(node: Node, name: str) -> None:
    """Whatever else lies there: a program that is read by a pattern names no path."""
    (node.folder / "of-an-earlier-start.pt").write_text("x" * 1000)
    sync = node.sync()
    for step in (10, 20):
        place = node.folder / name.format(step)
        (node.folder / "train.log").write_text(f"step {step}")
        if name.startswith("checkpoint"):
            place.mkdir()
            place /= "weights"
        place.write_text("x" * 100 * step)
        assert not look(sync)
        printing(node, step)
        assert look(sync) and not look(sync)
    manifests = [json.loads(body) for key, body in node.server.objects.items() if key.endswith("manifest.json")]
    assert sorted((item["step"], item["name"]) for item in manifests) == [(10, name.format(10)), (20, name.format(20))]
    assert {kind for kind, _detail in node.events()} == {"checkpoint_stored"}


def test_a_program_that_prints_before_it_saves_is_waited_for(node: Node) -> None:
    sync = node.sync()
    printing(node, 10)
    assert not look(sync) and node.events() == []
    (node.folder / "last.pt").write_text("half")
    sync._take_reports()
    (node.folder / "last.pt").write_text("half and whole")
    assert not sync.step()
    assert look(sync) and node.names() == {"0": "last.pt"}


def test_a_printed_checkpoint_of_before_is_found_by_its_number(node: Node) -> None:
    """The supervisor was started again before it was stored."""
    (node.folder / "w-10.pt").write_text("x")
    printing(node, 10, at=time.time() - 60)
    sync = node.sync()
    assert look(sync) and node.names() == {"0": "w-10.pt"}


def test_checkpoints_that_cannot_be_followed_are_told_once(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere, sync = node.root / "elsewhere" / "w-5.pt", node.sync()
    with (node.run / "metrics.jsonl").open("a") as handle:
        handle.write(json.dumps({"checkpoint_step": 5, "path": str(elsewhere)}) + "\n")
    assert not look(sync)
    printing(node, 10)
    assert not look(sync)
    monkeypatch.setattr(checkpoint_reports, "_LATE_S", -1.0)
    assert not look(sync)
    told = [(kind, detail.partition(". ")[0]) for kind, detail in node.events()]
    assert told == [
        ("checkpoint_not_stored", f"checkpoint 5: {elsewhere} is not in {node.folder}"),
        ("checkpoint_not_stored", f"checkpoint 10 was reported, and nothing new is in {node.folder}"),
    ]


def test_a_program_that_reports_nothing_is_told(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    sync = node.sync()
    (node.folder / "w-10.pt").write_text("x")
    assert not look(sync) and node.events() == []
    monkeypatch.setattr(checkpoint_reports, "_UNREPORTED_S", -1.0)
    assert not look(sync)
    ((kind, detail),) = node.events()
    assert kind == "checkpoint_not_stored" and "the program reports no checkpoint" in detail


def test_an_unknown_failure_does_not_end_what_stores(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    sync = node.sync()
    monkeypatch.setattr(sync._reports, "take", lambda _last: 1 / 0)
    assert sync.start().close(20)
    assert node.events() == [("checkpoint_not_stored", "ZeroDivisionError: division by zero")]


@pytest.mark.parametrize(
    ("fault", "words"),
    [("expired", "the signed addresses have expired"), (403, "lack a permission"), ("gone", "secrets")],
)
def test_a_failure_is_an_event_and_the_program_goes_on(node: Node, fault: object, words: str) -> None:
    node.save(1, 1)
    if fault == "expired":
        node.write_addresses(-1)
    elif fault == "gone":
        (node.run / "addresses.json").unlink()
        words = "addresses.json"
    else:
        node.server.faults["PUT", "/bucket/0/manifest.json"] = [403]
    sync = node.sync()
    assert not sync.step()
    ((kind, detail),) = node.events()
    assert kind == "checkpoint_not_stored" and detail.startswith("step-1: ") and "X-Amz" not in detail
    assert words in detail or fault == 403 and "answered 403" in detail
    node.write_addresses()
    assert sync.step() and list(node.names().values()) == ["step-1"]


def test_the_thread_stores_the_last_one_before_it_ends(node: Node) -> None:
    sync = checkpoint_sync.start_sync(node.rules(), node.run, "n")
    assert sync is not None
    node.save(7, 7)
    while not sync.close(1.0):
        continue
    assert list(node.names().values()) == ["step-7"]


def test_of_nodes_with_one_folder_the_first_stores(node: Node) -> None:
    assert checkpoint_sync.start_sync(node.rules(shared=True, first=False), node.run, "n") is None
    assert checkpoint_sync.start_sync(node.rules(store=None), node.run, "n") is None


def test_candidates_are_those_here_and_those_in_the_bucket(node: Node) -> None:
    node.save(1, 1)
    node.sync().step()
    node.save(2, 2)
    found = node.candidates()
    assert [(row["name"], row["ok"]) for row in found["local"]] == [("step-2", True), ("step-1", True)]
    ((slot, parts, name, step),) = [(x["slot"], x["parts"], x["name"], x["step"]) for x in found["stored"]]
    assert (slot, parts, name, step) == (0, 1, "step-1", 1)
    torn = node.folder / "step-1"
    torn.write_text("other")
    os.utime(torn, ns=(1, 1))
    assert [row["ok"] for row in node.candidates()["local"]] == [True, False]
    node.server.buckets.clear()
    assert "the bucket does not exist" in node.candidates()["problem"]


def test_a_checkpoint_is_fetched_and_newer_ones_are_hidden(node: Node) -> None:
    node.save(1, 1)
    node.sync().step()
    (node.folder / "step-1").unlink()
    node.save(2, 2)
    slot = node.slots()[0]
    wanted = {"name": "step-1", "saved_at": 1, "manifest": slot["manifest"]["get"], "parts": slot["parts"][:1]}
    assert node.ask("restore", aside=["step-2"], **wanted) == {"bytes": 1}
    assert sorted(os.listdir(node.folder)) == [".step-2.newer", "step-1"]
    assert "deleted or replaced" in node.ask("restore", **{**wanted, "saved_at": 9})["damaged"]
    del node.server.objects["0/part-0"]
    assert "a part of it does not exist" in node.ask("restore", **wanted)["damaged"]


def test_a_checkpoint_that_is_being_stored_is_not_removed(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    node.save(1, 1)
    sync = node.sync()
    seen: list[str | None] = []
    monkeypatch.setattr(checkpoint_store, "upload", lambda *_a: seen.append(sync.holds) or {"bytes": 0})
    assert sync.step() and seen == ["step-1"] and sync.holds is None


def test_the_steps_of_the_program_come_first(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread that stores has a lower priority; the supervisor's other threads keep theirs."""
    seen: list[int] = []

    def take(*_unused: object) -> None:
        seen.append(os.getpriority(os.PRIO_PROCESS, 0))

    monkeypatch.setattr(checkpoint_sync.CheckpointSync, "_take_reports", take)
    before = os.getpriority(os.PRIO_PROCESS, 0)
    assert node.sync().start().close(20)
    assert seen == [before, max(before, 10)] and os.getpriority(os.PRIO_PROCESS, 0) == before
