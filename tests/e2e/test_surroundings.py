# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Surroundings that other programs trip over: another language, no home, any umask."""

from __future__ import annotations

import os
import stat
import sys

import pytest

from ansible_collections.muster.training.tests.e2e.playbook_world import World, assert_refused, script
from ansible_collections.muster.training.tests.e2e.test_interruptions import assert_ends_well

PLAIN = {"LANG": "C", "LC_ALL": "C"}


def test_ansible_itself_refuses_the_language_c(world: World) -> None:
    """ansible-core starts under UTF-8 only; nothing of ours has run then."""
    result = world.play(job=world.job(), env=PLAIN)
    assert_refused(world, result, "requires the locale encoding to be UTF-8")
    assert world.digest() == {}


def test_nodes_whose_language_is_c(world: World) -> None:
    """Names and values that are not ASCII reach the rank as they are."""
    (world.root / "code").mkdir()
    (world.root / "code" / "größe-模型.txt").write_text("ja\n")
    text = f"set -e; cat größe-模型.txt > {world.root}/saw-$RANK; printf '%s' \"$GRUSS $1\" >> {world.root}/saw-$RANK"
    job = world.job(
        command=["sh", "-c", text, "sh", "argument-é"],
        code={"ref": str(world.root / "code")},
        env={"GRUSS": "grüß-gott-🚂"},
    )
    program = script(world.root / "c-python", f'#!/bin/sh\nLANG=C LC_ALL=C exec {sys.executable} "$@"\n')
    hosts = {node: {"ansible_python_interpreter": program} for node in ("node-1", "node-2")}
    result = world.play(job=job, hosts=hosts)
    assert result.code == 0, result.output
    for rank in (0, 1):
        assert (world.root / f"saw-{rank}").read_bytes() == "ja\ngrüß-gott-🚂 argument-é".encode()


def test_without_home(world: World) -> None:
    """The home of the user's account is used; here every path is named, so nothing is written there."""
    result = world.play(job=world.job(), env={"HOME": None})
    assert result.code == 0, result.output
    assert world.record()["outcome"] == "succeeded"


@pytest.mark.parametrize(
    "umask",
    [
        0o077,
        0o022,
        0o000,
    ],
    ids=lambda umask: f"{umask:03o}",
)
def test_files_are_for_their_owner_only(world: World, umask: int) -> None:
    """Folders 0700 and files 0600 (0700 what can be run) on controller and nodes."""
    job = world.rank_job(talk=True, datasets=[{"name": "text", "path": str(world.root / "ansible.cfg")}])
    assert_ends_well(world, world.start(job=job, umask=umask))
    tops = [top for top in (world.state, world.nodes) if top.exists()]
    modes = {path: stat.S_IMODE(os.lstat(path).st_mode) for top in tops for path in (top, *top.rglob("*"))}
    assert not {str(path): oct(mode) for path, mode in modes.items() if mode & 0o077}
