# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Experiment trackers: how a node tells one from another server, and the variables by which a program finds it."""

from __future__ import annotations

import dataclasses
import json
import typing as t
import urllib.parse

from ....module_utils._model.binding import Binding


@dataclasses.dataclass(frozen=True, slots=True)
class Seen:
    """What a server answered a node: the status, the kind of content, and the beginning of it."""

    status: int
    kind: str
    text: str


@dataclasses.dataclass(frozen=True, slots=True)
class Tracker:
    """One kind of tracker.

    ``method``, ``path`` and ``body`` are a request that needs no credential; ``knows`` tells its own answer. ``names``:
    what a credential is called -> the variable in which the program has it; ``sets`` are those that belong together.
    ``place`` returns the variables without a secret for an address, an experiment and a run.
    """

    title: str
    method: str
    path: str
    knows: t.Callable[[Seen], bool]
    names: t.Mapping[str, str]
    sets: tuple[tuple[str, ...], ...]
    place: t.Callable[[str, str, str], dict[str, str]]
    body: str = ""
    ca_variable: str = ""


def _is_wandb(seen: Seen) -> bool:
    try:
        answer = json.loads(seen.text)
    except ValueError:
        return False
    return isinstance(answer, dict) and "viewer" in (answer.get("data") or {})


def _place_wandb(endpoint: str, experiment: str, run_id: str) -> dict[str, str]:
    # One run of theirs for all attempts of one of ours.
    own = {"WANDB_RUN_ID": run_id, "WANDB_RUN_GROUP": run_id, "WANDB_RESUME": "allow"}
    return {"WANDB_BASE_URL": endpoint, "WANDB_PROJECT": experiment, **own}


# The first is the one of a binding without ``provider``.
TRACKERS: t.Final[dict[str, Tracker]] = {
    "mlflow": Tracker(
        title="MLflow",
        method="GET",
        path="/health",
        # A proxy may ask for a login before anything: the credentials are tried by themselves.
        knows=lambda seen: (seen.status == 200 and seen.text.strip() == "OK") or seen.status == 401,
        names={
            "token": "MLFLOW_TRACKING_TOKEN",
            "username": "MLFLOW_TRACKING_USERNAME",
            "password": "MLFLOW_TRACKING_PASSWORD",
        },
        sets=(("token",), ("username", "password")),
        place=lambda endpoint, experiment, _run: {
            "MLFLOW_TRACKING_URI": endpoint,
            "MLFLOW_EXPERIMENT_NAME": experiment,
        },
        ca_variable="MLFLOW_TRACKING_SERVER_CERT_PATH",
    ),
    "wandb": Tracker(
        title="Weights & Biases",
        method="POST",
        path="/graphql",
        body='{"query": "query Viewer {viewer {entity username}}"}',
        knows=lambda seen: seen.status == 401 or (seen.status == 200 and _is_wandb(seen)),
        names={"api_key": "WANDB_API_KEY"},
        sets=(("api_key",),),
        place=_place_wandb,
    ),
}


def tracker_of(binding: Binding) -> Tracker:
    """Return the kind of tracker that a binding is of."""
    return TRACKERS[binding.provider or next(iter(TRACKERS))]


def build_request(binding: Binding) -> dict[str, t.Any]:
    """Return what a node asks, without a credential."""
    tracker = tracker_of(binding)
    url = f"{binding.endpoint}{tracker.path}"
    return {"url": url, "method": tracker.method, "body": tracker.body, "ca": binding.ca}


def judge_answer(binding: Binding, answer: t.Mapping[str, t.Any]) -> tuple[str, str] | None:
    """Return what is wrong with an answer that a node had, as :func:`judge` does."""
    return judge(binding, Seen(int(answer["status"]), str(answer["kind"]), str(answer["text"])))


def judge(binding: Binding, seen: Seen) -> tuple[str, str] | None:
    """Return what is wrong with an answer and how to mend it, None for the answer of such a tracker."""
    tracker, host = tracker_of(binding), urllib.parse.urlsplit(binding.endpoint).netloc
    if tracker.knows(seen):
        return None
    if seen.status == 403 and "Invalid Host header" in seen.text:
        return f"it refuses the name {host}", f"Start mlflow server with --allowed-hosts '{host}' among its names"
    if "html" in seen.kind or seen.text.lstrip()[:1] == "<":
        fix = "Check the endpoint: a web page answers there, of a proxy or a login"
        return f"answers {seen.status} with a web page, not as {tracker.title}", fix
    return f"answers {seen.status}, not as {tracker.title}", "Check endpoint and provider"
