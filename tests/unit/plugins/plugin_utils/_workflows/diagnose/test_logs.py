# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A folder of logs to a JSON list: the runner, and the playbook as a user calls it."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError
from ansible_collections.muster.training.plugins.plugin_utils._workflows.diagnose import logs as runner
from ansible_collections.muster.training.plugins.plugin_utils._workflows.diagnose.logs import diagnose_folder
from ansible_collections.muster.training.tests.support.nccl_text import ring, warn

FIXTURES = pathlib.Path(__file__).resolve().parents[5] / "fixtures" / "fabric"
FIELDS = {"file", "kind", "transport", "transport_verdict", "gdr", "outcome", "causes"}


@pytest.fixture
def logs(tmp_path: pathlib.Path) -> pathlib.Path:
    folder = tmp_path / "logs"
    (folder / "attempt-1").mkdir(parents=True)
    (folder / "attempt-1" / "rank.log").write_text("\n".join(ring("NET/IB/0/GDRDMA")))
    (folder / "b.log").write_text(warn("Duplicate GPU detected : rank 2 and rank 0 both on CUDA device 1000"))
    (folder / "a.log").write_bytes(b"")
    return folder


def entries(result: dict[str, t.Any]) -> dict[str, dict[str, t.Any]]:
    return {entry["file"]: entry for entry in result["diagnoses"]}


def test_every_file_has_an_entry(logs: pathlib.Path) -> None:
    result = diagnose_folder(str(logs))
    assert [entry["file"] for entry in result["diagnoses"]] == ["a.log", "attempt-1/rank.log", "b.log"]
    assert all(entry.keys() >= FIELDS for entry in result["diagnoses"])
    assert result["changed"] is False and len(result["summary"]) == 3
    assert result["summary"][2] == "b.log: fail; nccl_log; transport unproven; duplicate_gpu (on node-1)"


def test_the_file_is_written_once(logs: pathlib.Path, tmp_path: pathlib.Path) -> None:
    dest = tmp_path / "out.json"
    assert diagnose_folder(str(logs), str(dest), check=True)["changed"] and not dest.exists()
    first = diagnose_folder(str(logs), str(dest))
    assert first["changed"] and json.loads(dest.read_text()) == first["diagnoses"]
    before = dest.stat().st_mtime_ns
    assert not diagnose_folder(str(logs), str(dest))["changed"] and dest.stat().st_mtime_ns == before
    (logs / "a.log").write_text("x\n")
    assert diagnose_folder(str(logs), str(dest))["changed"]
    assert [path.name for path in tmp_path.iterdir() if path.name != "logs"] == ["out.json"]


def test_its_own_answer_is_no_log(logs: pathlib.Path) -> None:
    dest = logs / "out.json"
    first = diagnose_folder(str(logs), str(dest))
    assert not diagnose_folder(str(logs), str(dest))["changed"]
    assert "out.json" not in entries(first)


def test_one_file_is_enough(logs: pathlib.Path) -> None:
    assert [entry["file"] for entry in diagnose_folder(str(logs / "b.log"))["diagnoses"]] == ["b.log"]


def test_what_is_no_file(logs: pathlib.Path) -> None:
    os.mkfifo(logs / "pipe")
    (logs / "loop").symlink_to("loop")
    (logs / "gone").symlink_to("nowhere")
    (logs / "other.log").symlink_to("b.log")
    found = entries(diagnose_folder(str(logs)))
    assert found["pipe"]["problem"] == found["gone"]["problem"] == "not a regular file"
    assert found["loop"]["problem"]
    assert found["other.log"]["causes"][0]["code"] == "duplicate_gpu"


def test_a_file_that_cannot_be_read(logs: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(stream: t.BinaryIO, name: str) -> t.NoReturn:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(runner, "diagnose_stream", broken)
    assert entries(diagnose_folder(str(logs)))["b.log"]["problem"] == "cannot be read: Input/output error"


def test_errors_name_the_option(logs: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="^path: .* does not exist"):
        diagnose_folder(str(tmp_path / "nothing"))
    with pytest.raises(InputError, match="^dest: .* cannot be written"):
        diagnose_folder(str(logs), str(tmp_path / "nothing" / "out.json"))
    with pytest.raises(InputError, match="^dest: "):
        diagnose_folder(str(logs), str(logs / "attempt-1"))
    monkeypatch.setattr(runner, "MAX_FILES", 2)
    with pytest.raises(InputError, match="more than 2 files"):
        diagnose_folder(str(logs))


def test_the_playbook_by_its_name(tmp_path: pathlib.Path) -> None:
    dest = tmp_path / "diagnosis.json"
    command = [sys.executable, "-m", "ansible", "playbook", "muster.training.diagnose"]
    command += ["-e", f"diagnose_logs={FIXTURES}", "-e", f"diagnose_out={dest}"]
    environment = {**os.environ, "ANSIBLE_LOCAL_TEMP": str(tmp_path / "ansible"), "ANSIBLE_NOCOLOR": "1"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    found = {entry["file"]: entry for entry in json.loads(dest.read_text())}
    assert len(found) == len(list(FIXTURES.iterdir()))
    assert found["good-h100-ibext-gdrdma-1.log"]["transport_verdict"] == "rdma_gdr"
    assert all(entry.keys() >= FIELDS for entry in found.values())
