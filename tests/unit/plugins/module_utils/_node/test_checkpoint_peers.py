# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes that copy checkpoints from each other over real sockets: with the run's key, whole, and before ranks begin."""

from __future__ import annotations

import concurrent.futures
import json
import os
import pathlib
import shutil
import socket
import time
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._node import checkpoint_copies, checkpoint_peers

EMPTY_TENSORS = "\2" + "\0" * 7 + "{}"


def free_port() -> int:
    with socket.socket() as link:
        link.bind(("127.0.0.1", 0))
        return int(link.getsockname()[1])


class Node:
    """The folder of a run on one node of a gang."""

    def __init__(self, root: pathlib.Path, name: str, places: dict[str, list[t.Any]]) -> None:
        self.run, self.folder, self.name = root / name, root / name / "checkpoints", name
        self.spec = {"key": "secret", "node": name, "folder": str(self.folder), "format": "files", "nodes": places}
        self.tell()
        self.server = checkpoint_peers.PeerServer(self.run)

    def tell(self, **changes: t.Any) -> None:
        place = self.run / checkpoint_peers.SPEC
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(json.dumps({**self.spec, **changes}))

    def save(self, path: str, text: str = "weights") -> pathlib.Path:
        place = self.folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
        return place

    def has(self) -> dict[str, str]:
        """Return what a program finds: path -> content."""
        found = (path for path in self.folder.rglob("*") if path.is_file() and not path.name.startswith("."))
        return {path.relative_to(self.folder).as_posix(): path.read_text() for path in found}

    def events(self, kind: str) -> list[dict[str, t.Any]]:
        place = self.run / "events.jsonl"
        lines = [json.loads(line) for line in place.read_text().splitlines()] if place.exists() else []
        return [line for line in lines if line["kind"] == kind]


class Gang:
    """Nodes a, b and c; ``begin`` is what rank.py does on all of them before the ranks' programs."""

    def __init__(self, root: pathlib.Path) -> None:
        places: dict[str, list[t.Any]] = {name: ["127.0.0.1", free_port()] for name in "abc"}
        self.nodes = {name: Node(root, name, places) for name in places}
        for node in self.nodes.values():
            node.server.start()

    def __getitem__(self, name: str) -> Node:
        return self.nodes[name]

    def begin(self, gang: str, first: bool = False) -> dict[str, str]:
        with concurrent.futures.ThreadPoolExecutor() as pool:
            tasks = {
                name: pool.submit(checkpoint_peers.pass_gate, node.run, gang, first=first)
                for name, node in self.nodes.items()
            }
            return {name: problem for name, task in tasks.items() if (problem := task.result(30))}


@pytest.fixture
def gang(tmp_path: pathlib.Path) -> Gang:
    return Gang(tmp_path)


def test_what_one_node_saved_is_on_all_before_their_ranks_begin(gang: Gang) -> None:
    gang["a"].save("step_1.pt", "one")
    gang["a"].save("best/model.json", "{}")
    assert gang.begin("1/x") == {}
    expected = {"step_1.pt": "one", "best/model.json": "{}"}
    assert [node.has() for node in gang.nodes.values()] == [expected] * 3
    (event,) = [item for item in gang["b"].events("checkpoint_copied") if item["detail"] == "step_1.pt"]
    assert (event["source"], event["bytes"]) == ("a", 3)
    assert gang["a"].events("checkpoint_copied") == []
    # Time and mode come along: the newest file of a folder is the newest there, too.
    assert (gang["b"].folder / "step_1.pt").stat().st_mtime_ns == (gang["a"].folder / "step_1.pt").stat().st_mtime_ns
    gang["a"].save("step_2.pt", "two")
    assert gang.begin("1/y") == {}
    assert gang["b"].has() == {**expected, "step_2.pt": "two"}, "half of such a file cannot be told from the whole one"
    gang["a"].save("step_3.pt", "three")
    assert gang.begin("1/z") == {}
    assert gang["b"].has() == {"step_2.pt": "two", "step_3.pt": "three", "best/model.json": "{}"}, (
        "the oldest copy went"
    )
    assert gang["a"].has() == {**expected, "step_2.pt": "two", "step_3.pt": "three"}
    assert len(gang["c"].events("checkpoint_copied")) == 4, "only what is missing is copied"


def test_of_a_format_that_shows_its_end_the_newest_alone_is_copied(gang: Gang) -> None:
    for step in (1, 2):
        gang["a"].save(f"step_{step}.safetensors", EMPTY_TENSORS)
    assert gang.begin("1/x") == {}
    assert [*gang["b"].has()] == ["step_2.safetensors"]


def test_a_file_of_one_name_that_was_saved_again_replaces_the_copy(gang: Gang) -> None:
    gang["a"].save("ckpt.pt", "one")
    assert gang.begin("1/x") == {}
    gang["a"].save("ckpt.pt", "two")
    assert gang.begin("1/y") == {} and gang["b"].has() == {"ckpt.pt": "two"}
    # The first machine is replaced: it gets what the others have.
    shutil.rmtree(gang["a"].folder)
    assert gang.begin("1/z") == {} and gang["a"].has() == {"ckpt.pt": "two"}


def test_parts_and_random_states_stay(gang: Gang) -> None:
    for number, name in enumerate("abc"):
        gang[name].save(f"checkpoint-5/rng_state_{number}.pth", name)
    gang["a"].save("checkpoint-5/model.bin")
    assert gang.begin("1/x") == {}
    assert gang["b"].has() == {
        "checkpoint-5/rng_state_0.pth": "a",
        "checkpoint-5/rng_state_1.pth": "b",
        "checkpoint-5/model.bin": "weights",
    }
    for name in "abc":
        gang[name].save("checkpoint-6/model.bin", name)
    before = {name: node.has() for name, node in gang.nodes.items()}
    assert gang.begin("1/y") == {} and before == {name: node.has() for name, node in gang.nodes.items()}
    assert [event["in_parts"] for event in gang["b"].events("checkpoints_seen")] == [False, True]


def test_what_a_program_does_after_it_began_does_not_count(gang: Gang) -> None:
    """A node whose ranks begin late sees what the others had when theirs began."""
    early = [checkpoint_peers.pass_gate(gang[name].run, "1/x", first=True) for name in "ab"]
    gang["a"].save("step_1.pt")
    assert early == ["", ""] and checkpoint_peers.pass_gate(gang["c"].run, "1/x", first=True) == ""
    assert gang["c"].has() == {}
    # Another rank of the same node asks nothing any more.
    for node in gang.nodes.values():
        node.tell(nodes={name: ["127.0.0.1", 1] for name in "abc"})
    assert checkpoint_peers.pass_gate(gang["c"].run, "1/x", first=True) == ""


def test_another_key_is_refused(gang: Gang, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint_peers, "_REACH_S", 0.3)
    gang["a"].save("step_1.pt")
    gang["b"].tell(key="wrong")
    problems = gang.begin("1/x")
    assert "ended the connection" in problems["b"] and gang["b"].has() == {}
    gang["b"].tell()
    assert gang.begin("1/y") == {} and gang["b"].has() == {"step_1.pt": "weights"}


@pytest.mark.parametrize("saved", [False, True])
def test_a_node_that_cannot_be_reached(gang: Gang, monkeypatch: pytest.MonkeyPatch, saved: bool) -> None:
    """A first start with nothing to lose begins and says so; a restart is refused with the reason."""
    monkeypatch.setattr(checkpoint_peers, "_REACH_S", 0.3)
    if saved:
        gang["a"].save("step_1.pt")
    port = free_port()
    gang["a"].tell(nodes={**gang["a"].spec["nodes"], "c": ["127.0.0.1", port]})  # type: ignore[dict-item]
    problem = checkpoint_peers.pass_gate(gang["a"].run, "1/x", first=True)
    assert (f"c at 127.0.0.1:{port}: Connection refused" in problem) is saved
    assert len(gang["a"].events("checkpoints_not_compared")) == (not saved)
    assert checkpoint_peers.pass_gate(gang["a"].run, "1/y", first=False)


def test_a_file_that_does_not_arrive_as_it_was_sent_is_not_used(gang: Gang, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two nodes that have it, one sends something else: the other one's is taken."""
    gang["a"].save("step_1.pt", "weights")
    assert gang.begin("1/x") == {}
    shutil.rmtree(gang["c"].folder)
    sent: list[t.Any] = []
    send = checkpoint_peers._send

    def send_wrong(link: socket.socket, key: str, nonce: str, value: dict[str, t.Any]) -> None:
        # The first digest that is sent is of something else.
        wrong = "sha256" in value and not sent
        sent.extend([value] if wrong else [])
        send(link, key, nonce, {"sha256": "0" * 64} if wrong else value)

    monkeypatch.setattr(checkpoint_peers, "_send", send_wrong)
    assert gang.begin("1/y") == {} and gang["c"].has() == {"step_1.pt": "weights"} and sent
    assert not list(gang["c"].folder.glob(".*.copying"))


def test_a_disk_without_room_is_named(gang: Gang, monkeypatch: pytest.MonkeyPatch) -> None:
    gang["a"].save("step_1.pt")
    monkeypatch.setattr(checkpoint_peers, "_ROOM", 1 << 60)
    assert "copying checkpoints needs 7 bytes" in checkpoint_peers.pass_gate(gang["b"].run, "1/x", first=False)
    assert gang["b"].has() == {}


def test_a_copy_that_was_cut_short_is_completed_and_never_taken_for_own(gang: Gang) -> None:
    """The node dies after it has moved one of two files."""
    gang["a"].save("step_1/one", "one")
    gang["a"].save("step_1/two", "two")
    (wanted,) = checkpoint_copies.list_entries(gang["a"].folder, "files")
    staged = gang["b"].folder / ".step_1.copying"
    gang["b"].save(".step_1.copying/one", "one")
    os.utime(staged / "one", ns=(wanted.files["one"][1],) * 2)
    half = checkpoint_copies.Copy(wanted, ("a",), {"one": wanted.files["one"]})
    checkpoint_peers._put_in_place(gang["b"].folder, staged, half)
    assert gang["b"].has() == {"step_1/one": "one"}
    assert gang.begin("1/x") == {} and gang["b"].has() == gang["a"].has() == gang["c"].has()


def test_a_node_whose_program_ends_at_once_still_answers_the_others(gang: Gang) -> None:
    asked: list[float] = []
    assert checkpoint_peers.pass_gate(gang["a"].run, "1/x", first=True) == ""
    with concurrent.futures.ThreadPoolExecutor() as pool:
        waiting = pool.submit(gang["a"].server.linger, lambda: asked.append(time.monotonic()))
        for name in "bc":
            assert not waiting.done()
            assert checkpoint_peers.pass_gate(gang[name].run, "1/x", first=True) == ""
        waiting.result(5)
    assert asked
    gang["a"].server.linger(lambda: pytest.fail("all have asked"))


def test_a_node_that_copied_and_whose_program_has_ended_does_not_keep_the_others(
    gang: Gang, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was asked once, while it copied; a node that lacks nothing begins without another answer."""
    monkeypatch.setattr(checkpoint_peers, "_REACH_S", 0.3)
    gang["a"].save("step_1.pt")
    ask, asked = checkpoint_peers._Gate._ask_all, []

    def ask_once(gate: checkpoint_peers._Gate) -> t.Any:
        answers, problems = ask(gate)
        asked.append(answers)
        return ({}, {"b": "b at 127.0.0.1: Connection refused"}) if len(asked) > 1 else (answers, problems)

    monkeypatch.setattr(checkpoint_peers._Gate, "_ask_all", ask_once)
    assert checkpoint_peers.pass_gate(gang["a"].run, "2/x", first=False) == "" and len(asked) > 1
    assert gang["a"].events("checkpoints_seen")


def test_a_run_without_peers_has_no_gate(tmp_path: pathlib.Path) -> None:
    assert checkpoint_peers.pass_gate(tmp_path, "1/x", first=False) == ""
    checkpoint_peers.PeerServer(tmp_path).start()
    checkpoint_peers.PeerServer(tmp_path).linger(lambda: pytest.fail("nobody asks"))
    assert not list(tmp_path.iterdir())
