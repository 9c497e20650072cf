# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import multiprocessing
import os
import signal
import time
import typing as t

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared.parent_process import watch_parent

LIMIT_S = 10


def _worker(pipe: t.Any) -> None:
    """Begin to watch when the parent is gone already, as a worker that was busy until then."""
    pipe.send(os.getpid())
    end = time.monotonic() + LIMIT_S
    parent = multiprocessing.parent_process()
    while parent and os.getppid() == parent.pid and time.monotonic() < end:
        time.sleep(0.01)
    pipe.send(watch_parent()())


def _start_worker(pipe: t.Any) -> None:
    multiprocessing.get_context("fork").Process(target=_worker, args=(pipe,)).start()
    signal.pause()


# pytest's own threads hold no lock that the forked processes take.
@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_parent_that_was_killed_before_is_noticed() -> None:
    ours, theirs = multiprocessing.Pipe()
    parent = multiprocessing.get_context("fork").Process(target=_start_worker, args=(theirs,))
    parent.start()
    assert ours.poll(LIMIT_S) and ours.recv()
    parent.kill()
    parent.join()
    assert ours.poll(2 * LIMIT_S) and ours.recv() is True


def test_a_parent_that_lives_is_not_missed() -> None:
    assert watch_parent()() is False
