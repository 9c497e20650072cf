# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The specification of a pod as the text that the pod reads."""

from __future__ import annotations

import dataclasses
import json

from ansible_collections.muster.training.plugins.module_utils._model.pod_spec import PodSpec

SPEC = PodSpec(
    "r-1", 1, 2, 29500, ("./run", "{rank}"), {"B": "2", "A": "1"}, "/code", "/ckpt", secrets=({"name": "T"},)
)


def test_the_same_specification_gives_the_same_text() -> None:
    other = dataclasses.replace(SPEC, env={"A": "1", "B": "2"})
    assert SPEC.to_json() == other.to_json()
    assert SPEC.to_json() != dataclasses.replace(SPEC, attempt=2).to_json()


def test_the_text_holds_every_field() -> None:
    value = json.loads(SPEC.to_json())
    assert set(value) == {field.name for field in dataclasses.fields(PodSpec)}
    assert (value["argv"], value["secrets"], value["policy"]) == (["./run", "{rank}"], [{"name": "T"}], "whole")
