# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The code and data of a run, and the names that follow from them."""

from __future__ import annotations

import pathlib
import typing as t

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError, RefusedError
from ansible_collections.muster.training.plugins.module_utils._model.job import Job, parse_job
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job import source as code_source

Dict = dict[str, t.Any]


def job(**changes: t.Any) -> Job:
    return parse_job({"name": "x", "nodes": 2, "script": "/t.py", **changes})


def test_the_trees_of_a_job_are_read_relative_to_the_playbook(tmp_path: pathlib.Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").write_text("1")
    (tmp_path / "text").write_text("2")
    wanted: Dict = {
        "script": "train.py",
        "code": {"ref": ".", "workdir": "src"},
        "datasets": [{"name": "d", "path": "text"}],
    }
    found = code_source.read_source(job(**wanted), tmp_path, tmp_path / "git")
    assert [(item.target, item.link) for item in found.placed] == [("code", False), ("data/d", True)]
    assert found.code_sha256 == found.placed[0].tree.sha256 and found.commit is None
    assert len(found.blobs()) == 2 and found.blobs() == sorted(found.blobs())
    pinned = {**wanted, "code": {"ref": ".", "workdir": "src", "sha256": found.code_sha256}}
    assert code_source.read_source(job(**pinned), tmp_path, tmp_path / "git") == found
    (tmp_path / "src" / "train.py").write_text("changed")
    with pytest.raises(RefusedError, match=r"^job\.code\.sha256: the code has checksum "):
        code_source.read_source(job(**pinned), tmp_path, tmp_path / "git")


def test_a_script_that_is_not_in_the_code_is_known_at_once(tmp_path: pathlib.Path) -> None:
    (tmp_path / "train.py").touch()
    with pytest.raises(InputError, match=r"^job\.script: src/train\.py does not exist in the code \.$"):
        code_source.read_source(job(script="train.py", code={"ref": ".", "workdir": "src"}), tmp_path, tmp_path / "git")
    assert code_source.read_source(
        job(script=None, module="m", code={"ref": "."}), tmp_path, tmp_path / "git"
    ).code_sha256


def test_one_job_with_one_code_has_one_run_id(tmp_path: pathlib.Path) -> None:
    (tmp_path / "train.py").write_text("1")
    wanted = job(script="train.py", code={"ref": "."})

    def identity(one: Job) -> str:
        return code_source.derive_run_id(one, code_source.read_source(one, tmp_path, tmp_path / "git"))

    first = identity(wanted)
    assert first == identity(wanted) and first.startswith("x-") and len(first) == 10
    others = [identity(job(script="train.py", code={"ref": "."}, args=["--lr", "1"])), identity(job(nodes=2))]
    (tmp_path / "train.py").write_text("2")
    assert len({first, identity(wanted), *others}) == 4


def test_an_option_that_another_version_does_not_have_is_no_other_job(tmp_path: pathlib.Path) -> None:
    """With its default; else the same command would start anew after an upgrade."""
    found = code_source.CodeSource((), None, None)
    plain = code_source.job_digest(job(), found)
    assert plain == code_source.job_digest(job(checkpoints={"copy_every_s": 30}, restart={"max_crashes": 3}), found)
    assert plain != code_source.job_digest(job(checkpoints={"copy_every_s": 31}), found)
    tracked = {"tracking": {"binding": "m", "log": True}}
    named = {"tracking": {"binding": "m", "log": True, "alias": "trained"}}
    digests = [code_source.job_digest(job(**values), found) for values in (tracked, named)]
    assert digests[0] == digests[1] != plain


@given(identity=st.text(max_size=20))
def test_a_port_is_even_below_the_ephemeral_range_and_always_the_same(identity: str) -> None:
    number = code_source.rendezvous_port(identity)
    assert 20_000 <= number < 30_000 and number % 2 == 0 and code_source.rendezvous_port(identity) == number


def test_checkpoints_of_a_run_lie_below_the_jobs_own_folder() -> None:
    context = code_source.build_context(job(checkpoints={"path": "/ckpt/"}), "x-1", 3)
    assert (context.checkpoint_dir, context.attempt) == ("/ckpt/x-1", 3)
    assert context.port == code_source.rendezvous_port("x-1")
    assert code_source.build_context(job(), "x-1", 1).checkpoint_dir is None
    never = code_source.build_context(job(checkpoints={"resume": "never"}), "x-1", 3)
    assert never.checkpoints_in("/run") == "/run/checkpoints/attempt-3"
