# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether ansible-playbook has ended and left its worker, which must not go on alone."""

from __future__ import annotations

import multiprocessing
import os
import typing as t


def watch_parent() -> t.Callable[[], bool]:
    """Return a function that tells whether the process that started this one has ended.

    A worker of Ansible knows its parent's number since it was forked: the parent may have been killed before this call.
    """
    started_by = multiprocessing.parent_process()
    parent = os.getppid() if started_by is None else started_by.pid
    return lambda: os.getppid() != parent
