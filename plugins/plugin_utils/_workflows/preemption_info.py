# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Waiting for a notice that a machine will be taken away: all machines are asked again and again, by themselves."""

from __future__ import annotations

import time
import typing as t

from ...module_utils._model.timestamps import format_time
from .._hosts.node_client import NodeClient, on_each_node

Result = dict[str, t.Any]


def find_notices(
    remotes: t.Sequence[NodeClient],
    named: t.Sequence[str],
    wait_s: float,
    interval_s: float,
    sleep: t.Callable[[float], None] = time.sleep,
    clock: t.Callable[[], float] = time.monotonic,
    now: t.Callable[[], float] = time.time,
) -> Result:
    """Return ``{changed, notices, noticed_at, unanswered}`` as soon as there is a notice, or after ``wait_s`` seconds.

    :param named: nodes for which the user has a notice; nothing is waited for then.
    """
    end = clock() + wait_s
    notices = dict.fromkeys(named, "named by the user")
    while True:
        answers, errors = on_each_node(remotes, lambda remote: remote.call("notice"))
        found = {name: str(value["notice"]) for name, value in sorted(answers.items()) if value["notice"]}
        notices = {**found, **notices}
        left = end - clock()
        if notices or left <= 0:
            at = format_time(now())
            return {"changed": False, "notices": notices, "noticed_at": at, "unanswered": sorted(errors)}
        sleep(min(interval_s, left))
