# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which answers are those of a tracker, and what is said of others."""

from __future__ import annotations

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.binding import Binding
from ansible_collections.muster.training.plugins.plugin_utils._services.tracking.trackers import Seen, judge, tracker_of

NOBODY = '{"data": {"viewer": null}}'
PAGE = "<!doctype html><title>Log in</title>"


def binding(provider: str | None) -> Binding:
    about = {"name": "t", "component": "tracking", "mode": "bind", "endpoint": "http://mlflow.mesh:5000"}
    return Binding.from_dict({**about, "provider": provider})


@pytest.mark.parametrize(
    ("provider", "seen", "words"),
    [
        (None, Seen(200, "text/html", "OK"), ""),
        ("mlflow", Seen(200, "text/plain", "OK\n"), ""),
        ("mlflow", Seen(401, "text/plain", "You are not authenticated"), ""),
        ("mlflow", Seen(403, "text/plain", "Invalid Host header - possible"), "it refuses the name mlflow.mesh:5000"),
        ("mlflow", Seen(200, "text/html", PAGE), "answers 200 with a web page, not as MLflow"),
        ("mlflow", Seen(302, "text/html", ""), "answers 302 with a web page"),
        ("mlflow", Seen(404, "application/json", "{}"), "answers 404, not as MLflow"),
        ("mlflow", Seen(200, "application/json", NOBODY), "answers 200, not as MLflow"),
        ("wandb", Seen(200, "application/json", NOBODY), ""),
        ("wandb", Seen(401, "application/json", "{}"), ""),
        ("wandb", Seen(200, "text/plain", "OK"), "answers 200, not as Weights & Biases"),
        ("wandb", Seen(200, "application/json", "[]"), "answers 200, not as"),
        ("wandb", Seen(502, "text/html", PAGE), "answers 502 with a web page"),
    ],
)
def test_an_answer_is_judged(provider: str | None, seen: Seen, words: str) -> None:
    found = judge(binding(provider), seen)
    assert (found is None) == (not words)
    if found:
        assert words in found[0] and found[1]


def test_the_variables_of_a_program() -> None:
    placed = tracker_of(binding("mlflow")).place("http://m:5000", "llm", "r-1")
    assert placed == {"MLFLOW_TRACKING_URI": "http://m:5000", "MLFLOW_EXPERIMENT_NAME": "llm"}
    placed = tracker_of(binding("wandb")).place("https://api.wandb.ai", "llm", "r-1")
    assert (placed["WANDB_PROJECT"], placed["WANDB_RUN_ID"], placed["WANDB_RESUME"]) == ("llm", "r-1", "allow")
