# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The contract of the API: a strict server passes, and each fault is named by its clause."""

from __future__ import annotations

import dataclasses

import pytest

from ansible_collections.muster.training.plugins.module_utils._http.client import HttpClient
from ansible_collections.muster.training.plugins.module_utils._http.retry import RetryPolicy, Timeouts
from ansible_collections.muster.training.plugins.plugin_utils._workflows.serve_check.contract import (
    ModelRequest,
    check_server,
)
from ansible_collections.muster.training.plugins.plugin_utils._workflows.serve_check.reference import Reference
from ansible_collections.muster.training.tests.fakes.openai import OpenAi

ASKED = ModelRequest("char-lm", "The licenses for most software")
CLAUSES = (
    *("health", "models", "chat", "chat_usage", "chat_stream", "chat_stream_done", "completion", "completion_usage"),
    *("unknown_model", "bad_request"),
)


def failed(*faults: str, asked: ModelRequest = ASKED) -> dict[str, str]:
    with OpenAi(faults=faults) as server:
        client = HttpClient(server.url, timeouts=Timeouts(total_s=20.0), retry=RetryPolicy(attempts=1))
        checks = check_server(client, asked)
    assert all(check.fix and "\n" not in check.problem + check.fix for check in checks if not check.ok)
    return {check.name: check.problem for check in checks if not check.ok}


def test_a_strict_server_passes_every_clause() -> None:
    with OpenAi() as server:
        checks = check_server(HttpClient(server.url), ASKED)
    assert [check.name for check in checks if check.ok] == list(CLAUSES)


# The five deviations of transformers serve are among them: no models, renamed, no done, 500 for mistakes, no health.
FAULTS: dict[str, dict[str, str]] = {
    "no health": {"health": "no health route answers 200"},
    "no models": {"models": "char-lm is not listed; listed are none"},
    "html": {"models": "/v1/models answered 200 <html>log in</html>"},
    "renamed": dict.fromkeys(("chat", "completion"), "the answer is of model 'char-lm@main', asked was 'char-lm'"),
    "no end": dict.fromkeys(("chat", "completion"), "finish_reason is None, neither stop nor length"),
    "usage": dict.fromkeys(("chat_usage", "completion_usage"), "usage does not add up: 5 + 4 = 4"),
    "no usage": dict.fromkeys(("chat_usage", "completion_usage"), "usage is missing or has no numbers"),
    "no text": {"completion": "its answer has no text"},
    "no template": {"chat": "answered 400", "chat_stream": "answered 400 application/json, not a text/event-stream"},
    "no stream": {"chat_stream": "answered 200 application/json, not a text/event-stream"},
    "no done": {"chat_stream_done": "its last event is not [DONE] but {"},
    "cut stream": {"chat_stream": "no event has a finish_reason", "chat_stream_done": "is not [DONE]"},
    "torn stream": {"chat_stream": "an event is not JSON: {torn"},
    "any model": {"unknown_model": "a model that does not exist answered 200, not 400 or 404"},
    "no reason": {"unknown_model": "answered 404 without a reason"},
    "500 for mistakes": {"bad_request": "a request without messages answered 500, not 400 or 422"},
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_named_by_its_clause(fault: str) -> None:
    found, wanted = failed(fault), FAULTS[fault]
    assert set(found) == set(wanted)
    assert all(words in found[name] for name, words in wanted.items())


def test_a_server_for_completions_alone() -> None:
    assert failed("no template", "no stream", asked=ModelRequest("char-lm", "x", chat=False)) == {}


def test_a_server_that_is_not_there() -> None:
    client = HttpClient("http://127.0.0.1:9", retry=RetryPolicy(attempts=1))
    checks = check_server(client, ASKED)
    assert len(checks) == 7 and not any(check.ok for check in checks)
    assert all(check.problem.startswith("no answer: ") for check in checks)


KNOWN = ModelRequest(
    "char-lm", "x", references=(Reference("The licenses", " are", -0.1), Reference("b", " are", -0.105))
)


def test_what_the_training_side_made_of_prompts_is_compared() -> None:
    assert failed(asked=KNOWN) == {}
    said = "2 of 2 prompts differ: prompt 1 is followed by ' of' (-0.200), in training by ' are' (-0.100)"
    assert failed("other model", asked=KNOWN) == {"logprobs": said}
    (problem,) = failed("no logprobs", asked=KNOWN).values()
    assert problem.startswith("the answer to prompt 1 has no log-probabilities: 200")
    exact = dataclasses.replace(KNOWN, tolerance=0.001)
    assert failed(asked=exact)["logprobs"].startswith("1 of 2 prompts differ: prompt 1 ' are' has the log-probability")
