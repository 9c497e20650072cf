# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which causes end the wait for a probe at once, and which are only told; the probe itself is in tests/lab."""

from __future__ import annotations

import types
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import RefusedError
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.watch import WatchEvent
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.kubernetes import (
    network_preflight,
)

Dict = dict[str, t.Any]
MADE: Dict = {"metadata": {"name": "r-probe", "creationTimestamp": "2026-11-21T10:00:00Z"}}
JOB: Dict = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "r-probe", "namespace": "n"}}


class Warnings:
    """A watch that has these warnings."""

    at = "2026-11-21T10:00:00Z"

    def __init__(self, *told: tuple[str, str, str]) -> None:
        self.events = [
            WatchEvent(
                "ADDED",
                {
                    "type": "Warning",
                    "involvedObject": about,
                    "reason": reason,
                    "message": message,
                    "lastTimestamp": self.at,
                },
            )
            for name, reason, message in told
            for about in [{"kind": "Job", "name": name, "namespace": "n"}]
        ]

    def __iter__(self) -> t.Iterator[WatchEvent]:
        return iter([*self.events, WatchEvent("SYNCED", {})])

    def close(self) -> None:
        return


def causes(*told: tuple[str, str, str], outage: bool = False) -> tuple[network_preflight._Causes, list[str]]:
    said: list[str] = []
    transport = types.SimpleNamespace(is_recovering=lambda: outage)
    client = types.SimpleNamespace(watch=lambda *_a, **_k: Warnings(*told), transport=transport)
    plan = types.SimpleNamespace(namespace="n", job=types.SimpleNamespace(image="i:1"))
    made = network_preflight._Causes(t.cast(t.Any, client), t.cast(t.Any, plan), MADE, t.cast(t.Any, Said(said)))
    for _ in range(200):
        if len(said) >= len({item for item in told if item[0].startswith("r-probe")}):
            break
        network_preflight.time.sleep(0.01)
    return made, said


class Said:
    """Keeps lines."""

    def __init__(self, lines: list[str]) -> None:
        self.say = lines.append


def pulling(reason: str) -> Dict:
    waits = [{"name": "node", "state": {"waiting": {"reason": reason, "message": "no such image"}}}]
    meta = {"name": "r-probe-0-x", "namespace": "n"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "status": {"containerStatuses": waits}}


def test_an_image_is_given_another_try_and_then_refused() -> None:
    made, said = causes()
    assert made.rule(pulling("ErrImagePull")).phase == "waiting"
    with pytest.raises(RefusedError, match=r"job\.image: i:1 cannot be pulled: ImagePullBackOff: no such image"):
        made.rule(pulling("ImagePullBackOff"))
    assert said == ["probe: Pod n/r-probe-0-x: its image cannot be pulled: ErrImagePull: no such image"]


def test_what_the_namespace_forbids_ends_the_wait() -> None:
    made, said = causes(("r-probe", "FailedCreate", 'violates PodSecurity "restricted:latest"'))
    with pytest.raises(RefusedError, match=r"Job n/r-probe: FailedCreate: violates PodSecurity"):
        made.rule(JOB)
    assert len(said) == 1


def test_what_was_said_of_a_probe_before_is_old_news(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names repeat, and events stay for an hour: what was refused then may be allowed now."""
    monkeypatch.setattr(Warnings, "at", "2026-11-21T09:59:59Z")
    made, said = causes(("r-probe", "FailedCreate", 'violates PodSecurity "restricted:latest"'))
    assert made.rule(JOB).phase == "waiting" and said == []


def test_what_is_refused_just_after_an_outage_is_told_and_waited_for() -> None:
    made, said = causes(("r-probe", "FailedCreate", 'violates PodSecurity "restricted:latest"'), outage=True)
    assert made.rule(JOB).phase == "waiting" and len(said) == 1


def test_who_has_not_seen_the_owner_yet_refuses_for_a_moment_only() -> None:
    words = 'Error creating: admission webhook "mpod.kb.io" denied the request: Job.batch "r-probe" not found'
    made, said = causes(("r-probe", "FailedCreate", words))
    assert made.rule(JOB).phase == "waiting" and len(said) == 1


def test_what_may_pass_is_told_and_waited_for() -> None:
    made, said = causes(
        ("r-probe", "FailedCreate", "failed calling webhook x"), ("other", "FailedMount", "not of the probe")
    )
    assert made.rule(JOB).phase == "waiting"
    assert said == [
        "probe: Job n/r-probe: an admission webhook of the cluster does not answer: FailedCreate: failed calling webhook x"
    ]
