# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""kube_wait: targets from options and from kube_apply's result, and the message of a wait that failed."""

from __future__ import annotations

import pathlib
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError
from ansible_collections.muster.training.plugins.plugin_utils._kube.objects.status import State
from ansible_collections.muster.training.plugins.plugin_utils._kube.objects.wait import WaitOutcome, WaitTarget
from ansible_collections.muster.training.plugins.plugin_utils._workflows.kube_objects import kube_wait as subject
from ansible_collections.muster.training.tests.support.scripted_client import scripted_client
from ansible_collections.muster.training.tests.support.scripted_http import Script

JOB = {"kind": "Job", "apiVersion": "batch/v1", "name": "j", "namespace": "team", "action": "created"}
OPTIONS: dict[str, t.Any] = {"until": "done", "timeout_s": 5}


def run(
    monkeypatch: pytest.MonkeyPatch, objects: list[dict[str, t.Any]], outcome: WaitOutcome
) -> tuple[dict[str, t.Any], list[WaitTarget], list[str]]:
    waits: list[WaitTarget] = []
    lines: list[str] = []

    def wait(_client: t.Any, targets: list[WaitTarget], **options: t.Any) -> WaitOutcome:
        waits.extend(targets)
        options["report"]("Job team/j", State("waiting", "has no pods yet"))
        options["report"]("Job team/j", State("done", "succeeded"))
        return outcome

    monkeypatch.setattr(subject, "open_client", lambda *_args: scripted_client(Script(), namespace="other"))
    monkeypatch.setattr(subject, "wait", wait)
    return subject.run({**OPTIONS, "objects": objects}, pathlib.Path(), False, lines.append), waits, lines


def outcome(end: t.Any, *states: tuple[str, State]) -> WaitOutcome:
    return WaitOutcome(end, states, 2, 1.23456, 0)


def test_the_result_of_kube_apply_is_a_list_of_targets(monkeypatch: pytest.MonkeyPatch) -> None:
    pruned = {**JOB, "name": "gone", "action": "pruned"}
    done = outcome("done", ("Job team/j", State("done", "succeeded")))
    result, targets, lines = run(monkeypatch, [JOB, pruned, {"kind": "Node", "labels": {"b": 1, "a": 2}}], done)
    assert [(item.resource.kind, item.namespace, item.name, item.labels) for item in targets] == [
        ("Job", "team", "j", ""),
        ("Node", None, "", "a=2,b=1"),
    ]
    assert "failed" not in result and result["duration_s"] == 1.235
    assert lines == ["Job team/j: done (succeeded)"], "what still waits is not a line"


def test_a_target_without_name_and_labels_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match=r"objects\[0\]: needs name or labels"):
        run(monkeypatch, [{"kind": "Job"}], outcome("done"))


@pytest.mark.parametrize(
    ("end", "phase", "message"),
    [
        ("failed", "failed", "failed (1 of 2 done): Job team/j BackoffLimitExceeded"),
        ("timeout", "waiting", "not done within 5 s (1 of 2 done): Job team/j BackoffLimitExceeded"),
    ],
)
def test_a_wait_that_failed_says_what_is_not_done(
    monkeypatch: pytest.MonkeyPatch, end: str, phase: t.Any, message: str
) -> None:
    states = (("Job team/j", State(phase, "BackoffLimitExceeded")), ("Job team/k", State("done", "succeeded")))
    result, _targets, _lines = run(monkeypatch, [JOB], outcome(end, *states))
    assert result["failed"] and result["msg"] == message


def test_check_mode_waits_for_nothing() -> None:
    assert not subject.run({**OPTIONS, "objects": [JOB]}, pathlib.Path(), True, print)["changed"]
