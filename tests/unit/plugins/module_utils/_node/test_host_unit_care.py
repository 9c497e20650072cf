# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a supervisor does beside its launcher, and that no launcher waits for it."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils import _node
from ansible_collections.muster.training.plugins.module_utils._node import checkpoints, host_unit_care, usage

LATE = ("dataclasses", "muster_node.host_unit_care", "muster_node.checkpoints", "muster_node.rank_transport")


def care(run: pathlib.Path, **changes: t.Any) -> host_unit_care.UnitCare:
    folder = str(run / "checkpoints")
    rules = {"folder": folder, "format": "files", "keep": 1, "first": True, "shared": False, "resume": "auto"}
    spec = {"events": str(run / "events.jsonl"), "node": "n", "usage": str(run / "usage.jsonl"), "checkpoints": rules}
    return host_unit_care.UnitCare({**spec, **changes}, 0)


def test_usage_is_recorded_where_it_is_asked_for(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage, "_EVERY_S", 0.0)
    own, without = care(tmp_path), care(tmp_path / "other", usage=None)
    for one in (own, without):
        # The first sample is what the second is compared with.
        one.record()
        one.record()
        one.record_last()
        one.close(None, lambda: None)
    (line,) = (tmp_path / "usage.jsonl").read_text().splitlines()
    assert json.loads(line)["node"] == "n"
    assert not (tmp_path / "other").exists()


def test_a_launcher_that_is_started_again_has_its_checkpoints_cared_for_once(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[str] = []

    class Pruning:
        def close(self) -> None:
            begun.append("closed")

    def start_pruning(folder: str, *_rules: t.Any, **_more: t.Any) -> Pruning:
        begun.append(folder)
        return Pruning()

    monkeypatch.setattr(checkpoints, "start_pruning", start_pruning)
    one = care(tmp_path)
    assert begun == []
    one.begin()
    one.begin()
    one.close(None, lambda: None)
    assert begun == [str(tmp_path / "checkpoints"), "closed"]


def test_a_launcher_waits_for_none_of_its_imports(tmp_path: pathlib.Path) -> None:
    """A supervisor imports little until its process is started: dataclasses alone take as long as all of that."""
    (tmp_path / "muster_node").symlink_to(next(iter(_node.__path__)))
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import muster_node.host_supervisor; "
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-B", "-c", code + f"print([n for n in {LATE} if n in sys.modules])"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[]"
    late = code + "import muster_node.host_unit_care; print('dataclasses' in sys.modules)"
    done = subprocess.run([sys.executable, "-I", "-S", "-B", "-c", late], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
