# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The next node has, while ranks run, what a node alone saved: over real sockets, and after the first one is lost."""

from __future__ import annotations

import fcntl
import pathlib
import shutil
import time

import pytest

from ansible_collections.muster.training.plugins.module_utils._node import checkpoint_peers, checkpoint_replica
from ansible_collections.muster.training.tests.unit.plugins.module_utils._node.test_checkpoint_peers import Gang


@pytest.fixture
def gang(tmp_path: pathlib.Path) -> Gang:
    return Gang(tmp_path)


def looks(gang: Gang) -> dict[str, checkpoint_replica.ReplicaThread]:
    return {name: checkpoint_replica.ReplicaThread(node.run) for name, node in gang.nodes.items()}


def test_the_next_node_alone_has_the_newest_and_a_lost_machine_gets_it_from_there(gang: Gang) -> None:
    threads = looks(gang)
    gang["a"].save("step_1.safetensors", "\2" + "\0" * 7 + "{}")
    assert [thread.step() for thread in threads.values()] == [False] * 3, "it may still be written"
    assert [thread.step() for thread in threads.values()] == [False, True, False]
    assert [*gang["b"].has()] == ["step_1.safetensors"] and gang["c"].has() == {}
    assert [thread.step() for thread in threads.values()] == [False] * 3, "what is there is not copied again"
    gang["a"].save("step_2.safetensors", "\2" + "\0" * 7 + "{}")
    for _ in range(2):
        for thread in threads.values():
            thread.step()
    assert [*gang["b"].has()] == ["step_2.safetensors"], "the copy of the one before went"
    # The first machine is gone with its disk; the gang begins again with an empty one.
    shutil.rmtree(gang["a"].folder)
    assert gang.begin("2/x") == {}
    assert all([*node.has()] == ["step_2.safetensors"] for node in gang.nodes.values())
    (first, second) = gang["b"].events("checkpoint_replicated")
    assert (first["source"], first["detail"], second["detail"]) == ("a", "step_1.safetensors", "step_2.safetensors")


def test_a_file_that_grows_is_copied_when_it_stands(gang: Gang) -> None:
    thread = looks(gang)["b"]
    for size in (1, 2, 3):
        gang["a"].save("step_1.bin", "x" * size)
        assert not thread.step() and gang["b"].has() == {}
    assert thread.step() and gang["b"].has() == {"step_1.bin": "xxx"}


def test_parts_of_each_node_stay_where_they_are(gang: Gang) -> None:
    for name in "abc":
        gang[name].save(f"step_1/part-{name}.bin", name)
    threads = looks(gang)
    for _ in range(2):
        assert not any(thread.step() for thread in threads.values())
    assert [*gang["b"].has()] == ["step_1/part-b.bin"]


def test_ranks_that_begin_come_first(gang: Gang) -> None:
    gang["a"].save("step_1.bin")
    thread = looks(gang)["b"]
    thread.step()
    with open(gang["b"].run / "gate.lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert not thread.step()
    assert thread.step()


def test_a_problem_is_noted_once_and_ends_nothing(gang: Gang, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint_peers, "_ROOM", 1 << 60)
    gang["a"].save("step_1.bin")
    gang["b"].tell(copy_every_s=0.01)
    thread = checkpoint_replica.ReplicaThread(gang["b"].run)
    thread.start()
    end = time.monotonic() + 20
    while not gang["b"].events("checkpoint_not_replicated") and time.monotonic() < end:
        time.sleep(0.01)
    monkeypatch.setattr(checkpoint_peers, "_ROOM", 0)
    while not gang["b"].has() and time.monotonic() < end:
        time.sleep(0.01)
    thread.close()
    (event,) = gang["b"].events("checkpoint_not_replicated")
    assert "copying checkpoints needs 7 bytes" in event["detail"] and gang["b"].has() == {"step_1.bin": "weights"}


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
            "b has a copy of a's checkpoint c.pt (4.0 MB in 0.5 s), and will have the newer ones",
        ),
        (
            {"kind": "checkpoint_not_replicated", "node": "b", "detail": "a does not answer"},
            "warning: b has no copy of the checkpoints of another node, which would be lost with it: a does not answer",
        ),
        ({"kind": "checkpoint_copied", "node": "b"}, ""),
    ],
)
def test_what_happened_is_a_sentence(line: dict[str, object], said: str) -> None:
    assert checkpoint_replica.describe(line) == said
