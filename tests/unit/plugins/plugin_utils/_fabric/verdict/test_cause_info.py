# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One cause: what to do is that of the backend where there is one."""

from __future__ import annotations

from ansible_collections.muster.training.plugins.plugin_utils._fabric.verdict.cause_info import CauseInfo


def test_the_fix_is_that_of_the_backend_where_there_is_one() -> None:
    info = CauseInfo("x", "fatal", "X", "both", on_hosts="hosts", in_pods="pods")
    assert (info.fix_on(None), info.fix_on("hosts"), info.fix_on("kubernetes")) == ("both", "hosts", "pods")
    plain = CauseInfo("x", "fatal", "X", "both")
    assert (plain.fix_on("hosts"), plain.fix_on("kubernetes")) == ("both", "both")
