# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The action kube_apply: check mode, diff mode and progress reach its workflow."""

from __future__ import annotations

import pytest

from ansible_collections.muster.training.tests.support.action_calls import BASE, say, workflow_call


@pytest.mark.parametrize("check", [False, True])
def test_the_workflow_gets_the_modes_of_the_task(monkeypatch: pytest.MonkeyPatch, check: bool) -> None:
    call = workflow_call(monkeypatch, "kube_apply", "kube_apply", diff=True, check=check)
    assert call == ({"name": "x"}, BASE, check, True, say)
