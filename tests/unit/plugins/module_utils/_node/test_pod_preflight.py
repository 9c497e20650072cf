# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The preflight of a pod: its identity, archive, secrets, disk and devices."""

from __future__ import annotations

import io
import os
import pathlib
import socket
import tarfile
import time
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.job_checkpoints import refuse_other_ranks
from ansible_collections.muster.training.plugins.module_utils._node import (
    pod_preflight,
)
from ansible_collections.muster.training.tests.support.node_lab import small_disk
from ansible_collections.muster.training.tests.unit.plugins.module_utils._node.pod_lab import PodLab


@pytest.fixture
def lab(tmp_path: pathlib.Path) -> t.Iterator[PodLab]:
    found = PodLab(tmp_path)
    yield found
    found.close()


def archive(*files: tuple[str, int, bytes], **changes: t.Any) -> bytes:
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w:gz") as tar:
        for name, mode, content in files:
            item = tarfile.TarInfo(name)
            item.size, item.mode = len(content), mode
            for key, value in changes.items():
                setattr(item, key, value)
            tar.addfile(item, io.BytesIO(content))
    return raw.getvalue()


def test_a_secret_that_is_not_mounted_is_named(lab: PodLab) -> None:
    gone = [{"name": "TOKEN", "file": "/no/such/file", "deliver": "env"}]
    end = lab.run(lab.spec(0, ["true"], secrets=gone))
    assert end.code == 78 and "the secret TOKEN is not in the pod" in end.text
    assert end.events("pod_refused")[0]["exit_code"] == 78


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"no archive", "is damaged"),
        (archive(("../evil", 0o600, b"")), "'../evil', which is not a plain file inside the archive"),
        (archive(("/evil", 0o600, b"")), "'/evil', which is not a plain file inside the archive"),
        (archive(("link", 0o600, b""), type=tarfile.SYMTYPE, linkname="/etc"), "'link', which is not a plain file"),
        (archive(("a", 0o600, b"x" * 5000))[:-40], "is damaged"),
    ],
    # An archive holds the time at which it was made: it is no name for a test.
    ids=["text", "above", "from the root", "link", "cut off"],
)
def test_an_archive_that_is_none_of_ours_is_refused(
    lab: PodLab, tmp_path: pathlib.Path, content: bytes, problem: str
) -> None:
    (tmp_path / "code.tar.gz").write_bytes(content)
    end = lab.run(lab.spec(0, ["true"], archive=str(tmp_path / "code.tar.gz")))
    assert end.code == 78 and problem in end.text and "Traceback" not in end.text


def test_checkpoints_that_could_not_be_written_are_found_before_anything_runs(
    lab: PodLab, tmp_path: pathlib.Path
) -> None:
    (tmp_path / "file").write_text("")
    end = lab.run(lab.spec(0, ["echo", "ran"], checkpoint_dir=str(tmp_path / "file" / "below")))
    assert end.code == 78 and "cannot be written: Not a directory" in end.text and "ran" not in end.lines
    end = lab.run(lab.spec(0, ["echo", "ran"], free_bytes=1 << 60))
    assert end.code == 74 and "MiB are needed" in end.text and "ran" not in end.lines


@pytest.mark.skipif(os.geteuid() != 0, reason="a small disk needs root")
def test_a_full_disk_is_told_from_a_forbidden_one(tmp_path: pathlib.Path) -> None:
    with small_disk(tmp_path / "disk") as disk:
        with (disk / "fill").open("wb") as handle, pytest.raises(OSError, match="No space"):
            while True:
                handle.write(b"x" * 65536)
                handle.flush()
        with pytest.raises(pod_preflight.PodRefusal, match="cannot be written: No space left") as caught:
            pod_preflight.check_disk(disk / "run", 0)
        assert not [*(disk / "run").glob(".muster-*")], "what it tried to write is gone"
        (disk / "fill").unlink()
        (disk / "run" / f".muster-1-{socket.gethostname()}").touch()
        pod_preflight.check_disk(disk / "run", 0)
        assert not [*(disk / "run").iterdir()], "nor is that of a pod that was killed"
    assert caught.value.code == pod_preflight.EXIT_NO_ROOM


def test_a_file_system_that_hangs_is_named_in_time(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_preflight, "_disk_problem", lambda *_: time.sleep(5))
    with pytest.raises(pod_preflight.PodRefusal, match="did not answer for 0 s"):
        pod_preflight.check_disk(tmp_path, 0, within_s=0.05)


@pytest.mark.parametrize(
    ("env", "rank"),
    [
        ({"JOB_COMPLETION_INDEX": "4"}, 4),
        ({"MUSTER_NODE_RANK": "2", "JOB_COMPLETION_INDEX": "4"}, 2),
        ({"MUSTER_NODE_RANK": "", "VC_TASK_INDEX": "1"}, 1),
        ({"MUSTER_POD": "x-worker-12"}, 12),
    ],
)
def test_a_pods_number_comes_from_where_its_engine_says_it(env: dict[str, str], rank: int) -> None:
    spec = {"attempt": 2, "rank_from_name": "MUSTER_POD" in env}
    place = pod_preflight.identify_pod(spec, {"MUSTER_POD": "x", **env, "MUSTER_RESTARTS": "1"})
    assert (place.rank, place.attempt) == (rank, 3)


def test_a_pod_without_a_number_is_refused(lab: PodLab) -> None:
    end = lab.run(lab.spec(0, ["true"]), JOB_COMPLETION_INDEX="")
    assert end.code == 78 and "the pod has no index" in end.text
    launcher = pod_preflight.identify_pod({"attempt": 1, "role": "launcher"}, {})
    assert launcher.rank == -1


def test_rdma_that_was_asked_for_must_be_there() -> None:
    found = {"gpus": 0, "rdma": [], "memlock_bytes": 8 << 20}
    with pytest.raises(pod_preflight.PodRefusal, match="/dev/infiniband has no device"):
        pod_preflight.check_devices({"rdma": True}, found)
    told = pod_preflight.check_devices({"rdma": True}, {**found, "rdma": ["uverbs0"]})
    assert told == ["only 8 MiB of memory can be locked: RDMA needs LimitMEMLOCK=infinity"]


def test_gpus_that_were_asked_for_must_be_there_where_they_can_be_counted() -> None:
    found: dict[str, t.Any] = {"gpus": 0, "rdma": [], "memlock_bytes": None}
    with pytest.raises(pod_preflight.PodRefusal, match="has 4 GPUs, the job needs 8$"):
        pod_preflight.check_devices({"gpus": 8}, {**found, "gpus": 4})
    with pytest.raises(
        pod_preflight.PodRefusal, match="has 0 GPUs, the job needs 8; make nvidia the default container runtime"
    ):
        pod_preflight.check_devices({"gpus": 8}, found)
    assert pod_preflight.check_devices({"gpus": 0}, found) == []
    assert pod_preflight.check_devices({"gpus": 8}, {**found, "gpus": 8}) == []
    told = pod_preflight.check_devices({"gpus": 1}, {**found, "gpus": None})
    assert told == ["whether the pod has the 1 GPUs of the job cannot be told from /dev"]


@pytest.mark.parametrize(
    ("names", "count"),
    [
        (["null", "nvidiactl", "nvidia-uvm"], 0),
        (["nvidia0", "nvidia1", "nvidia10", "nvidiactl"], 3),
        (["null", "dxg"], None),
        (["nvhost-gpu", "nvmap"], None),
        (["nvidia0", "nvhost-gpu"], 1),
    ],
)
def test_gpus_are_counted_by_their_device_files(names: list[str], count: int | None) -> None:
    assert pod_preflight.count_gpus(names) == count


def test_a_pod_without_the_gpus_that_it_asked_for_starts_nothing(lab: PodLab) -> None:
    if pod_preflight.count_gpus(os.listdir("/dev")) != 0:
        pytest.skip("this machine has GPUs")
    end = lab.run(lab.spec(0, ["echo", "runs"], gpus=1))
    assert (end.code, end.lines) == (78, []) and "the pod has 0 GPUs, the job needs 1" in end.text


def test_a_checkpoint_that_is_required_is_looked_for_before_the_program(lab: PodLab, tmp_path: pathlib.Path) -> None:
    rules = {"format": "files", "keep": None, "required": True, "shared": False}
    end = lab.run(lab.spec(0, ["echo", "ran"], checkpoints=rules))
    assert end.code == 78 and end.lines == []
    assert f"required, and {tmp_path / 'checkpoints'} has no complete checkpoint" in end.text
    (tmp_path / "checkpoints").mkdir(exist_ok=True)
    (tmp_path / "checkpoints" / "step-1").write_text("x")
    assert lab.run(lab.spec(0, ["echo", "ran"], checkpoints=rules)).lines == ["ran"]


@pytest.mark.parametrize(("ranks", "starts"), [([2], True), ([1, 2], True), ([4], False), (None, True)])
def test_a_checkpoint_that_so_many_ranks_cannot_load_is_refused(
    lab: PodLab, tmp_path: pathlib.Path, ranks: list[int] | None, starts: bool
) -> None:
    rules: dict[str, t.Any] = {"format": "auto", "keep": None, "required": False, "shared": True}
    rules |= {"ranks": ranks, "other_ranks": refuse_other_ranks(ranks)} if ranks else {}
    saved = tmp_path / "checkpoints" / "global_step20"
    saved.mkdir(parents=True)
    for name in (
        *(f"zero_pp_rank_{rank}_mp_rank_00_optim_states.pt" for rank in range(2)),
        "mp_rank_00_model_states.pt",
    ):
        (saved / name).write_text("x")
    (saved.parent / "latest").write_text(saved.name)
    end = lab.run(lab.spec(0, ["echo", "ran"], checkpoints=rules))
    assert (end.lines == ["ran"]) is starts, end.text
    assert ("was saved by 2 ranks (ZeRO), and the job has 4" in end.text) is not starts


def test_what_the_driver_says_of_itself_and_of_a_gpu(tmp_path: pathlib.Path) -> None:
    assert pod_preflight.read_driver(tmp_path) == {"driver": None, "gpu_model": None}
    line = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  595.91.07  Release Build  (dvs-builder@x)\n"
    (tmp_path / "version").write_text(f"{line}GCC version:  gcc version 14.2.0\n")
    place = tmp_path / "gpus" / "0000:1b:00.0"
    place.mkdir(parents=True)
    (place / "information").write_text("Model: \t\t NVIDIA H100 80GB HBM3\nIRQ:   \t 32\n")
    assert pod_preflight.read_driver(tmp_path) == {"driver": "595.91.07", "gpu_model": "NVIDIA H100 80GB HBM3"}
