# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A short pod: where it may run, when it ends, and what it has no access to."""

from __future__ import annotations

import typing as t

from ansible_collections.muster.training.plugins.plugin_utils._kube.objects.short_pod import build_short_pod_spec


def build(**about: t.Any) -> t.Any:
    return build_short_pod_spec({"name": "c"}, [], about.pop("pulls", ()), **{"node": None, **about})


def test_it_runs_anywhere_or_on_its_node_beside_the_taint_of_gpus() -> None:
    anywhere, there = build(), build(node="gpu-1")
    assert "affinity" not in anywhere and "gpu-1" in str(there["affinity"])
    assert anywhere["tolerations"] == [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]


def test_it_ends_by_itself_and_has_no_access_to_the_cluster() -> None:
    found = build(deadline_s=7)
    assert (found["activeDeadlineSeconds"], build()["activeDeadlineSeconds"]) == (7, 600)
    assert found["automountServiceAccountToken"] is False and found["restartPolicy"] == "Never"


def test_it_pulls_with_the_secrets_that_are_named() -> None:
    assert build(pulls=["a", "b"])["imagePullSecrets"] == [{"name": "a"}, {"name": "b"}]
    assert "imagePullSecrets" not in build()
