# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The table of causes: what to do holds on the backend where the run runs."""

from __future__ import annotations

import re

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._fabric.diagnosis.live_causes import find_fix
from ansible_collections.muster.training.plugins.plugin_utils._fabric.verdict.cause_table import CAUSES, SYMPTOMS


@pytest.mark.parametrize(
    "code", ["rendezvous_dns", "socket_connect_timeout", "dev_shm_full", "ranks_missing", "oom_host"]
)
def test_on_hosts_nothing_is_said_of_pods(code: str) -> None:
    assert not re.search(r"pod|emptyDir|Service|NetworkPolic", CAUSES[code].fix_on("hosts"))


def test_an_unknown_code_has_no_fix() -> None:
    assert find_fix("slow_path", "hosts") is None and find_fix("oom_gpu", None)


def test_symptoms_are_fatal_causes_that_something_explains() -> None:
    assert SYMPTOMS == ("collective_timeout", "rank_ended") and CAUSES["collective_timeout"].weight == "fatal"
