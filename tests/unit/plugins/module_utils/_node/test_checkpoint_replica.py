# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The next node has, while ranks run, what a node alone saved: over real sockets, and after the first one is lost."""

from __future__ import annotations

import fcntl
import os
import pathlib
import shutil
import socket
import threading
import time
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._node import checkpoint_peers, checkpoint_replica
from ansible_collections.muster.training.tests.unit.plugins.module_utils._node.test_checkpoint_peers import (
    EMPTY_TENSORS,
    Gang,
    free_port,
)


@pytest.fixture
def gang(tmp_path: pathlib.Path) -> Gang:
    return Gang(tmp_path)


def looks(gang: Gang) -> dict[str, checkpoint_replica.ReplicaThread]:
    return {name: checkpoint_replica.ReplicaThread(node.run) for name, node in gang.nodes.items()}


def step(thread: checkpoint_replica.ReplicaThread) -> bool:
    return thread.step(0.05)


def test_the_next_node_alone_has_the_newest_and_a_lost_machine_gets_it_from_there(gang: Gang) -> None:
    threads = looks(gang)
    gang["a"].save("step_1.safetensors", EMPTY_TENSORS)
    assert [step(thread) for thread in threads.values()] == [False, True, False], "it shows its end"
    assert [*gang["b"].has()] == ["step_1.safetensors"] and gang["c"].has() == {}
    assert [step(thread) for thread in threads.values()] == [False] * 3, "what is there is not copied again"
    gang["a"].save("step_2.safetensors", EMPTY_TENSORS)
    assert [step(thread) for thread in threads.values()] == [False, True, False]
    assert [*gang["b"].has()] == ["step_2.safetensors"], "the copy of the one before went"
    # The first machine is gone with its disk; the gang begins again with an empty one.
    shutil.rmtree(gang["a"].folder)
    assert gang.begin("2/x") == {}
    assert all([*node.has()] == ["step_2.safetensors"] for node in gang.nodes.values())
    (first, second) = gang["b"].events("checkpoint_replicated")
    assert (first["source"], first["detail"], second["detail"]) == ("a", "step_1.safetensors", "step_2.safetensors")


def rewrite(gang: Gang, every_s: float, ended: threading.Event) -> None:
    """Save one file again and again, as ``latest.pt``: each replaces the one before as a whole."""
    number = 0
    while not ended.wait(every_s):
        number += 1
        gang["a"].save("latest.new", f"{number:04d}").replace(gang["a"].folder / "latest.bin")


@pytest.mark.parametrize(("every_s", "copied"), [(0.4, True), (0.01, False)])
def test_a_file_that_is_replaced_often(gang: Gang, every_s: float, copied: bool) -> None:
    """It is copied where it stands for long enough, however seldom this node looks; else that is said."""
    ended = threading.Event()
    gang["a"].save("latest.bin", "0000")
    writer = threading.Thread(target=rewrite, args=(gang, every_s, ended))
    writer.start()
    thread = looks(gang)["b"]
    try:
        found = [step(thread) for _ in range(4)]
    finally:
        ended.set()
        writer.join()
    assert any(found) is copied
    said = gang["b"].events("checkpoint_not_replicated")
    assert [item["detail"] for item in said] == (
        [] if copied else ["latest.bin of a changes more often than every 0.05 s"]
    )


def test_a_file_that_is_written_while_it_is_sent_is_not_taken(gang: Gang, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a format that shows its end the newest is copied at once: the sender sees that it was changed."""
    place = gang["a"].save("step_1.safetensors", EMPTY_TENSORS)
    send = checkpoint_peers._send
    changed: list[int] = []

    def send_late(link: socket.socket, key: str, nonce: str, value: dict[str, t.Any]) -> None:
        if "size" in value and not changed:
            changed.append(1)
            os.utime(place, ns=(1, 1))
        send(link, key, nonce, value)

    monkeypatch.setattr(checkpoint_peers, "_send", send_late)
    thread = looks(gang)["b"]
    with pytest.raises(checkpoint_peers.PeerError, match="has changed|has another key|ended the connection"):
        step(thread)
    assert gang["b"].has() == {} and step(thread)


def test_parts_of_each_node_stay_where_they_are(gang: Gang) -> None:
    for name in "abc":
        gang[name].save(f"step_1/part-{name}.bin", name)
    threads = looks(gang)
    assert not any(step(thread) for thread in threads.values())
    assert [*gang["b"].has()] == ["step_1/part-b.bin"]


def test_parts_that_one_node_alone_saves_are_not_copied_and_that_is_said(gang: Gang) -> None:
    thread = looks(gang)["b"]
    gang["a"].save("step_1/part_rank0.bin")
    assert not any(step(thread) for _look in range(2)) and gang["b"].events("checkpoint_not_replicated") == []
    assert not step(thread)
    (event,) = gang["b"].events("checkpoint_not_replicated")
    assert event["detail"].startswith("names in step_1 have the number of a rank") and event["source"] == "a"


def test_ranks_that_begin_come_first(gang: Gang) -> None:
    gang["a"].save("step_1.bin")
    thread = looks(gang)["b"]
    with open(gang["b"].run / "gate.lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert not step(thread)
    assert step(thread)


def until(seen: t.Callable[[], object]) -> None:
    end = time.monotonic() + 20
    while not seen() and time.monotonic() < end:
        time.sleep(0.01)


def test_a_problem_is_noted_once_and_ends_nothing(gang: Gang, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint_peers, "_ROOM", 1 << 60)
    gang["a"].save("step_1.bin")
    gang["b"].tell(copy_every_s=0.01)
    thread = checkpoint_replica.ReplicaThread(gang["b"].run)
    thread.start()
    until(lambda: gang["b"].events("checkpoint_not_replicated"))
    monkeypatch.setattr(checkpoint_peers, "_ROOM", 0)
    until((gang["b"].folder / "step_1.bin").exists)
    thread.close()
    (event,) = gang["b"].events("checkpoint_not_replicated")
    assert "copying checkpoints needs 7 bytes" in event["detail"] and gang["b"].has() == {"step_1.bin": "weights"}


@pytest.mark.parametrize("answered", [True, False])
def test_a_node_that_was_never_reached_is_said_and_one_that_ended_is_not(gang: Gang, answered: bool) -> None:
    thread = checkpoint_replica.ReplicaThread(gang["b"].run)
    if answered:
        step(thread)
    places = {**gang["b"].spec["nodes"], "a": ["127.0.0.1", free_port()]}  # type: ignore[dict-item]
    gang["b"].tell(nodes=places, copy_every_s=0.01)
    thread.start()
    until(lambda: thread._vain >= 6)
    thread.close()
    said = gang["b"].events("checkpoint_not_replicated")
    assert len(said) == (not answered) and all("Connection refused" in item["detail"] for item in said)


@pytest.mark.parametrize("every", [None, 0])
def test_without_the_option_nothing_starts(gang: Gang, every: int | None) -> None:
    gang["b"].tell(copy_every_s=every)
    thread = checkpoint_replica.ReplicaThread(gang["b"].run)
    thread.start()
    assert thread._thread is None


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            {
                "kind": "checkpoint_replicated",
                "node": "b",
                "detail": "c.pt",
                "source": "a",
                "bytes": 4e6,
                "seconds": 0.5,
            },
            "b has a copy of what a saved, of c.pt first (4.0 MB in 0.5 s), and of the newer ones later",
        ),
        (
            {"kind": "checkpoint_not_replicated", "node": "b", "source": "a", "detail": "no room"},
            "warning: b cannot copy what a alone saves, and would be lost with a: no room",
        ),
        ({"kind": "checkpoint_copied", "node": "b"}, ""),
    ],
)
def test_what_happened_is_a_sentence(line: dict[str, object], said: str) -> None:
    assert checkpoint_replica.describe(line) == said
