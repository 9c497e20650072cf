# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How logs end: the cause and the rank that failed first, over a corpus that was written before the rules."""

from __future__ import annotations

import pathlib
import typing as t

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._fabric.diagnosis import scan
from ansible_collections.muster.training.plugins.plugin_utils._fabric.diagnosis.file import FileDiagnosis
from ansible_collections.muster.training.tests.support.nccl_text import codes, judged

ENDS = pathlib.Path(__file__).resolve().parents[5] / "fixtures" / "fabric" / "ends.corpus"
FILLER = "tokens_per_s=51234 lr=0.1\n" * 20


class End(t.NamedTuple):
    """One end of the corpus."""

    name: str
    code: str
    rank: int | None
    node: str | None
    source: str
    text: str


def ends() -> list[End]:
    """The corpus."""
    parts = ENDS.read_text(encoding="utf-8").split("\n@@ ")[1:]
    result = []
    for part in parts:
        head, _, text = part.partition("\n")
        name, code, rank, node, source = head.split(" | ")
        result.append(
            End(name, code, int(rank) if rank != "-" else None, node if node != "-" else None, source, text + "\n")
        )
    return result


def told(found: FileDiagnosis) -> str:
    """The deciding cause."""
    return next(iter(codes(found)), "-")


def test_the_corpus_is_large_and_of_public_reports() -> None:
    corpus = ends()
    assert len(corpus) >= 60 and sum(end.source.startswith("https://") for end in corpus) >= 30


@pytest.mark.parametrize("end", ends(), ids=lambda end: end.name)
def test_an_end_has_its_cause_and_its_first_rank(end: End) -> None:
    found = judged(end.text)
    assert (told(found), found.first_rank, found.first_node) == (end.code, end.rank, end.node)
    assert (found.outcome == "unproven") == (end.code == "-")


def test_a_big_log_ends_as_a_small_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "HEAD_BYTES", 0)
    monkeypatch.setattr(scan, "DENSE_BYTES", 0)
    for end in ends():
        found = judged(FILLER + end.text)
        assert (end.name, told(found), found.first_rank, found.first_node) == (end.name, end.code, end.rank, end.node)


def test_each_error_of_a_gpu_says_what_it_asks_for() -> None:
    xid = "[7.1] NVRM: Xid (PCI:0000:{}:00): {}, {}"
    found = judged(
        xid.format("3b", 119, "pid=9, name=python3, Timeout after 6s of waiting for RPC response from GPU2 GSP!"),
        xid.format("3b", 154, "GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)"),
        xid.format("5d", 48, "pid=9, An uncorrectable double bit error (DBE) has been detected on GPU"),
        xid.format("5d", 63, "Row Remapper: New row marked for remapping, reset gpu to activate."),
        xid.format("5d", 31, "pid=9, MMU Fault"),
    )
    assert (found.tool, found.outcome) == ("kernel", "fail")
    assert [(cause.code, cause.evidence.split(",")[0].split(" (")[0]) for cause in found.causes] == [
        ("gpu_error", "some.log:1: GPU 0000:3b:00.0: Xid 119"),
        ("gpu_error", "some.log:2: GPU 0000:3b:00.0: Xid 154"),
        ("gpu_error", "some.log:3: GPU 0000:5d:00.0: Xid 48"),
    ]
    assert "switch it off and on" in found.causes[1].fix and "--gpu-reset -i 0000:5d:00.0" in found.causes[2].fix
    assert {cause.code for cause in found.also} == {"gpu_watch", "gpu_program"}


def test_a_file_named_after_its_rank_says_which_rank_it_is() -> None:
    line = "RuntimeError: CUDA error: CUDA-capable device(s) is/are busy or unavailable"
    assert judged(line, name="logs/rank5.log").first_rank == 5 and judged(line).first_rank is None
    assert judged("step 1 loss 2.0", name="rank5.log").first_rank is None


def test_a_source_line_of_a_traceback_is_no_cause() -> None:
    found = judged(
        "    raise pickle.UnpicklingError(_get_wo_message(str(e))) from None",
        "_pickle.UnpicklingError: Weights only load failed. Re-running with `weights_only` set to `False` will load it",
    )
    assert codes(found) == ["checkpoint_untrusted"] and "need not be damaged" in found.causes[0].fix


def test_an_error_after_which_training_continued_is_over_also_far_down(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = "".join(f"step {number} lr 0.1\n" for number in range(5))
    for size in (scan.HEAD_BYTES, 0):
        monkeypatch.setattr(scan, "HEAD_BYTES", size)
        assert judged(f"ValueError: one bad image\n{steps}done").outcome == "unproven"
        assert codes(judged(f"{steps}ValueError: one bad image\n")) == ["program_error"]


IGNORED = (
    "Exception ignored in: <function _ConnectionBase.__del__ at 0x7f>\nTraceback (most recent call last):\n"
    '  File "/usr/lib/python3.12/multiprocessing/connection.py", line 133, in __del__\n    self._close()\n'
    "OSError: [Errno 9] Bad file descriptor\n"
)
RETRIED = (
    "requests.exceptions.ConnectionError: HTTPSConnectionPool(host='hub.example', port=443): Max retries exceeded with url\n"
    "trying again in 5 s\n"
)
STEPS = "".join(f"step {number} lr 0.1\n" for number in range(5))


@pytest.mark.parametrize("size", [scan.HEAD_BYTES, 0])
@pytest.mark.parametrize(
    ("text", "code"),
    [
        (STEPS + "done\n" + IGNORED, "-"),
        (STEPS + IGNORED + "ValueError: one bad image\n", "program_error"),
        (STEPS + "[rank0]: " + IGNORED.partition("\n")[0] + "\n[rank1]: ValueError: one bad image\n", "program_error"),
        (RETRIED + STEPS + "done\n", "-"),
        (STEPS + RETRIED, "download_failed"),
        (RETRIED + STEPS + RETRIED, "download_failed"),
        (RETRIED + STEPS + "ValueError: one bad image\n", "program_error"),
        (
            STEPS + "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.\n",
            "oom_host",
        ),
    ],
)
def test_what_ended_nothing_is_no_cause(monkeypatch: pytest.MonkeyPatch, size: int, text: str, code: str) -> None:
    """Python's errors in destructors, and downloads that were tried again before training continued."""
    monkeypatch.setattr(scan, "HEAD_BYTES", size)
    found = judged(text)
    assert (told(found), found.outcome) == (code, "unproven" if code == "-" else "fail")


OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (f"{STEPS}{OOM}halving the batch\n{STEPS}", "-"),
        (f"{STEPS}{OOM}{STEPS}{OOM}{STEPS}", "-"),
        (f"{STEPS}{OOM}", "oom_gpu"),
        (f"{STEPS}{OOM}step 6 loss 1.0\n", "oom_gpu"),
        # Another rank went on for a while, and the launcher says that it ended.
        (f"[rank1]: {OOM}{STEPS}torchrun: failed (exitcode: -6) local_rank: 1 (pid: 7)\n", "oom_gpu"),
        (f"{OOM}{STEPS}{OOM}", "oom_gpu"),
    ],
)
def test_memory_that_a_program_did_without_is_no_cause(text: str, code: str) -> None:
    assert told(judged(text)) == code


FINISHED = (
    "Training completed. Do not forget to share your model\n",
    "***** train metrics *****\n  epoch = 1.0\n",
    "{'train_runtime': 12.4, 'train_samples_per_second': 80.1}\n",
    "`Trainer.fit` stopped: `max_epochs=3` reached.\n",
    "INFO - Finished training\n",
)


@pytest.mark.parametrize("said", FINISHED)
@pytest.mark.parametrize(("error", "code"), [(OOM, "oom_gpu"), ("ValueError: one bad image\n", "program_error")])
def test_an_error_before_a_program_came_to_its_end_was_caught(said: str, error: str, code: str) -> None:
    """However few steps followed it."""
    caught = f"step 10 loss 2.1\n{error}trying again\nstep 11 loss 2.0\n"
    assert told(judged(caught + said)) == "-"
    assert told(judged(said + caught)) == code, "an end that came before tells nothing of it"
    assert told(judged(f"{caught}Training finished with an error\n")) == code
