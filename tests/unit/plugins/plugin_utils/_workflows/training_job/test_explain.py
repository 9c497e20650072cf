# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The end of a failed run: the error of its program and what to do."""

from __future__ import annotations

import dataclasses
import json
import pathlib

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.explain import explain_end
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.follower import RunOutcome

CRASH = RunOutcome("failed", 3, "crash", "a rank on n1 exited with code 3", "n1")

NAMES = ("n1", "n2")


def log(folder: pathlib.Path, node: str, text: str) -> None:
    (folder / "logs").mkdir(exist_ok=True)
    (folder / "logs" / f"{node}.log").write_text(text)


def test_the_own_nodes_log_comes_first(tmp_path: pathlib.Path) -> None:
    assert explain_end(tmp_path, CRASH, "hosts") == CRASH
    log(tmp_path, "n0", "[prterun-n0-9@1,1]<stdout>: ValueError: printed by mpirun\n")
    assert explain_end(tmp_path, CRASH, "hosts").detail.endswith("exited with code 3: ValueError: printed by mpirun")
    log(tmp_path, "n1", "[1,1]<stderr>:KeyError: 'own'\n")
    assert explain_end(tmp_path, CRASH, "hosts").detail.endswith("exited with code 3: KeyError: 'own'")


def test_what_the_ranks_wrote_to_standard_error_comes_before_the_log(tmp_path: pathlib.Path) -> None:
    log(tmp_path, "n1", "noise\nRuntimeError: of the launcher\n")
    (tmp_path / "logs" / "n1.err").write_text("Traceback\nValueError: the real reason\n")
    assert explain_end(tmp_path, CRASH, "hosts").detail.endswith("exited with code 3: ValueError: the real reason")


def test_a_killed_rank_is_not_given_the_words_of_another_node(tmp_path: pathlib.Path) -> None:
    log(tmp_path, "n0", "RuntimeError: [gloo/transport/tcp/pair.cc:525] Connection closed by peer\n")
    killed = RunOutcome("failed", 137, "crash", "a rank on n1 exited with code 137", "n1")
    detail = explain_end(tmp_path, killed, "hosts").detail
    assert "killed (SIGKILL), and nothing says by whom" in detail and "gloo" not in detail
    # By hand, by another program, by the kernel: less memory is no advice where that is not known.
    assert "Use less memory" not in detail and "dmesg on the node" in detail


@pytest.mark.parametrize(
    ("backend", "words"), [("hosts", "mount -o remount"), ("kubernetes", "Raise job.resources.shm")]
)
def test_the_advice_is_that_of_the_backend(tmp_path: pathlib.Path, backend: str, words: str) -> None:
    log(tmp_path, "n1", "RuntimeError: DataLoader worker (pid 3) is killed by signal: Bus error.\n")
    assert words in explain_end(tmp_path, CRASH, backend).detail  # type: ignore[arg-type]


def test_a_cause_without_an_error_line_is_named(tmp_path: pathlib.Path) -> None:
    log(tmp_path, "n1", "Loss is nan, stopping training\n")
    assert "exited with code 3: The loss is not a number" in explain_end(tmp_path, CRASH, "hosts").detail


def test_other_ends_get_the_fix_of_their_cause(tmp_path: pathlib.Path) -> None:
    nan = RunOutcome("failed", 1, "nan", "the loss is not a number since step 5")
    assert "since step 5. Lower the learning rate" in explain_end(tmp_path, nan, "hosts").detail
    image = RunOutcome("failed", 1, "image", "Pod x: its image cannot be pulled")
    assert "the right to pull it" in explain_end(tmp_path, image, "kubernetes").detail
    for end in (
        RunOutcome("succeeded", 0, "succeeded", "all ranks exited with code 0"),
        RunOutcome("cancelled", 143, "cancelled", "stopped on n1", "n1"),
        RunOutcome("failed", 124, "timeout", "timeout_s has passed"),
    ):
        assert explain_end(tmp_path, end, "hosts") == end


def test_the_code_of_an_end_is_found_by_one_rule(tmp_path: pathlib.Path) -> None:
    """A crash of which no rank is known says nothing of the image; what its line names is its cause."""
    crash = RunOutcome(
        "failed", 1, "crash", "JobSet a/r failed: FailedJobs: jobset failed due to one or more job failures"
    )
    assert explain_end(tmp_path, crash, "kubernetes") == crash
    full = RunOutcome("failed", 1, "crash", "/c cannot be written: No space left on device (user 0)")
    assert "Free space on the volume" in explain_end(tmp_path, full, "kubernetes").detail
    # Its fix speaks of a run that continues when the node answers.
    lost = RunOutcome("lost", 1, "node_lost", "n1 did not answer for 50 s", "n1")
    assert explain_end(tmp_path, lost, "hosts") == lost


@pytest.mark.parametrize(("gpus", "words"), [(0, False), (8, True)])
def test_a_job_without_gpus_gets_no_advice_on_nccl(tmp_path: pathlib.Path, gpus: int, words: bool) -> None:
    (tmp_path / "run.json").write_text(json.dumps({"job": {"gpus_per_node": gpus}}))
    stood = RunOutcome("failed", 1, "stalled", "stalled at step 4: no step for 60 s")
    detail = explain_end(tmp_path, stood, "hosts").detail
    assert ("NCCL_DEBUG" in detail) == words and "logs/NODE.stacks" in detail


@pytest.mark.parametrize("node", ["n0", "n1"])
def test_a_network_error_that_followed_from_the_end_of_a_rank_is_not_its_cause(
    tmp_path: pathlib.Path, node: str
) -> None:
    """The launcher finds the store closed after a rank has ended with a code of its own."""
    lost = "Traceback\ntorch.distributed.DistNetworkError: Failed to recv, got 0 bytes. Connection was likely closed.\n"
    store = "torch.distributed.elastic.rendezvous.api.RendezvousConnectionError: The connection to the C10d store has failed.\n"
    log(tmp_path, node, f"[default0]:step 1\n{lost}{store}")
    assert explain_end(tmp_path, CRASH, "hosts") == CRASH
    log(tmp_path, "n0", "[default0]:RuntimeError: [gloo/transport/tcp/pair.cc:525] Connection closed by peer\n")
    assert explain_end(tmp_path, CRASH, "hosts") == CRASH
    log(tmp_path, "n1", f"[default1]:{lost.splitlines()[1]}\n")
    assert "DistNetworkError" in explain_end(tmp_path, CRASH, "hosts").detail


@pytest.mark.parametrize(
    ("said", "is_named"),
    [
        ("RuntimeError: [../third_party/gloo/pair.cc:554] Connection closed by peer [10.0.0.2]:40817", True),
        ("OSError: [Errno 28] No space left on device", False),
    ],
)
def test_a_rank_that_left_is_why_the_others_lost_it(tmp_path: pathlib.Path, said: str, is_named: bool) -> None:
    """One that was done, while another failed by itself, is not blamed."""
    left = "rank 1 on b ended with exit code 0 at step 49 while the others went on"
    log(tmp_path, "a", f"Traceback (most recent call last):\n{said}\n")
    end = dataclasses.replace(CRASH, node="a", left=left)
    detail = explain_end(tmp_path, end, "hosts").detail
    assert (detail.startswith(f"{left}; "), "the others have more batches left" in detail) == (is_named, is_named)
    assert "NAT" not in detail and said in detail


def test_a_launcher_that_waited_in_vain_after_a_crash_says_nothing_of_its_cause(tmp_path: pathlib.Path) -> None:
    late = "    raise RendezvousTimeoutError\ntorch.distributed.elastic.rendezvous.api.RendezvousTimeoutError\n"
    log(tmp_path, "n1", f"Traceback (most recent call last):\n{late}")
    assert explain_end(tmp_path, CRASH, "hosts") == CRASH
    # In pods it may be all that there is: not all of them came.
    assert "Not all ranks started" in explain_end(tmp_path, CRASH, "kubernetes").detail


def test_a_full_disk_is_told_with_what_was_free_at_the_end(tmp_path: pathlib.Path) -> None:
    log(tmp_path, "n1", "OSError: [Errno 28] No space left on device: '/mnt/ck/step-3'\n")
    assert "MB free" not in explain_end(tmp_path, CRASH, "hosts").detail
    sizes = {"free_bytes": 2_100_000, "checkpoint_bytes": 4_000_000, "fits": 0}
    events = [{"kind": "checkpoint_room", "node": "n1", "folder": "/mnt/ck", **sizes}, {"kind": "worker_exit"}]
    (tmp_path / "events.jsonl").write_text("".join(json.dumps(line) + "\n" for line in events))
    detail = explain_end(tmp_path, CRASH, "hosts").detail
    before = "(n1: /mnt/ck has 2.1 MB free, a checkpoint takes 4.0 MB, as seen at a checkpoint before). Free space on"
    assert before in detail, detail
    rooms = {"n1": 262_144, "n2": 9_000_000}
    for node, free in rooms.items():
        events.append({"kind": "agent_exit", "node": node, "room": {"folder": "/mnt/ck", "free_bytes": free}})
    (tmp_path / "events.jsonl").write_text("".join(json.dumps(line) + "\n" for line in events))
    detail = explain_end(tmp_path, CRASH, "hosts").detail
    assert "(n1: /mnt/ck has 0.26 MB free at the end, a checkpoint takes 4.0 MB). Free space on the node" in detail, (
        detail
    )


@pytest.mark.parametrize(
    ("said", "free", "cause"),
    [
        ("OSError: [Errno 28] No space left on device", 9_000_000, "disk_full"),
        ("RuntimeError: PytorchStreamWriter failed writing file data/1: file write failed", 262_144, "disk_full"),
        ("RuntimeError: PytorchStreamWriter failed writing file data/1: file write failed", 3_900_000, "disk_full"),
        ("RuntimeError: PytorchStreamWriter failed writing file data/1: file write failed", 9_000_000, "crash"),
        ("ValueError: of the program", 262_144, "crash"),
    ],
)
def test_a_crash_for_want_of_room_ends_by_the_disk(tmp_path: pathlib.Path, said: str, free: int, cause: str) -> None:
    log(tmp_path, "n1", f"{said}\n")
    room = {"folder": "/mnt/ck", "free_bytes": 4_200_000, "checkpoint_bytes": 4_000_000, "fits": 1}
    events = [
        {"kind": "checkpoint_room", "node": "n1", **room},
        {"kind": "agent_exit", "node": "n1", "room": {"folder": "/mnt/ck", "free_bytes": free}},
    ]
    (tmp_path / "events.jsonl").write_text("".join(json.dumps(line) + "\n" for line in events))
    assert explain_end(tmp_path, CRASH, "hosts").cause == cause


def test_what_is_gone_from_a_node_is_named_and_not_the_import_that_failed(tmp_path: pathlib.Path) -> None:
    log(tmp_path, "n1", "Traceback (most recent call last):\nModuleNotFoundError: No module named 'model'\n")
    gone = [{"kind": "agent_exit", "node": node, "exit_code": 1, "missing": ["/m/code", "/m/code/x"]} for node in NAMES]
    (tmp_path / "events.jsonl").write_text("".join(json.dumps(line) + "\n" for line in gone[:1]))
    detail = explain_end(tmp_path, CRASH, "hosts").detail
    assert detail.startswith(f"{CRASH.detail}: /m/code is gone from n1 since the run was started. Train again"), detail
    assert "ModuleNotFoundError" not in detail
    later = [*gone, {"kind": "submitted", "attempt": 2}]
    (tmp_path / "events.jsonl").write_text("".join(json.dumps(line) + "\n" for line in later))
    assert "ModuleNotFoundError" in explain_end(tmp_path, CRASH, "hosts").detail, "it was there at the next start"
