# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a server answers as the OpenAI-compatible API says: each clause with what was seen.

The clauses are those of the API reference (models, chat, completions, streams of server-sent events that end with
[DONE]) and of NIM's health route. A server that lacks one is named by the clause; nothing is repeated but reads.
"""

from __future__ import annotations

import dataclasses
import json
import typing as t
from collections.abc import Callable, Iterator, Mapping

from ....module_utils._http.client import HttpClient
from ....module_utils._http.messages import HttpRequest, HttpResponse, json_request
from ....module_utils._model.checks import Check
from ....module_utils._model.errors import MusterError, one_line
from .reference import Reference

_HEALTH = ("/v1/health/ready", "/health")
_ANY = tuple(range(300, 600))
_TOKENS = 8
_COUNTS = 3
_UNKNOWN = "muster-no-such-model"
_SEEN = 160


@dataclasses.dataclass(frozen=True, slots=True)
class ModelRequest:
    """The model and the prompt; ``chat`` is whether the server is to chat.

    ``references``: what the training side made of prompts. ``tolerance``: how far log-probabilities may differ.
    """

    model: str
    prompt: str
    chat: bool = True
    references: tuple[Reference, ...] = ()
    tolerance: float = 0.01

    def completion(self, **more: object) -> dict[str, object]:
        """Return the body of a completion."""
        return {"model": self.model, "prompt": self.prompt, "max_tokens": _TOKENS, "temperature": 0, **more}

    def conversation(self, **more: object) -> dict[str, object]:
        """Return the body of a chat."""
        messages = [{"role": "user", "content": self.prompt}]
        return {"model": self.model, "messages": messages, "max_tokens": _TOKENS, "temperature": 0, **more}


def check_server(client: HttpClient, asked: ModelRequest) -> list[Check]:
    """Return each clause of the contract. A server that is not there fails all of them."""
    clauses: list[tuple[str, Callable[[HttpClient, ModelRequest], Iterator[Check]]]] = [
        ("health", _check_health),
        ("models", _check_models),
        *([("chat", _check_chat), ("chat_stream", _check_stream)] if asked.chat else []),
        ("completion", _check_completion),
        ("unknown_model", _check_unknown_model),
        ("bad_request", _check_bad_request),
        *([("logprobs", _check_logprobs)] if asked.references else []),
    ]
    found: list[Check] = []
    for name, clause in clauses:
        try:
            found += clause(client, asked)
        except MusterError as error:
            found.append(_clause(name, f"no answer: {error.message}", "Check that the server runs and is reachable"))
    return found


def _clause(name: str, problem: str, fix: str = "", seen: object = None, expected: object = None) -> Check:
    return Check(name, not problem, None, seen, expected, problem, fix if problem else "")


def _send(client: HttpClient, request: HttpRequest) -> tuple[HttpResponse, object]:
    """Return a response and its JSON, None where it has none."""
    response = client.send(request, allow=_ANY)
    try:
        return response, json.loads(response.body)
    except (ValueError, RecursionError):
        return response, None


def _post(client: HttpClient, path: str, body: Mapping[str, object]) -> tuple[HttpResponse, object]:
    return _send(client, json_request("POST", path, body=body))


def _describe(response: HttpResponse) -> str:
    """Return status and beginning of a body, for people."""
    text = one_line(response.body[:_SEEN].decode("utf-8", "replace"))
    return f"{response.status} {text}".strip()


def _get(value: object, *path: str | int) -> object:
    """Return what is at a path of decoded JSON, None where it is not."""
    for key in path:
        at: t.Any = key
        try:
            value = value[at] if isinstance(value, list | dict) else None
        except (LookupError, TypeError):
            return None
    return value


def _check_health(client: HttpClient, _asked: ModelRequest) -> Iterator[Check]:
    seen = {path: client.send(json_request("GET", path), allow=_ANY).status for path in _HEALTH}
    problem = "" if 200 in seen.values() else "no health route answers 200"
    fix = "Wait until the model is loaded; a server without such a route cannot be probed by Kubernetes: use /v1/models"
    yield _clause("health", problem, fix, seen, 200)


def _check_models(client: HttpClient, asked: ModelRequest) -> Iterator[Check]:
    response, data = _send(client, json_request("GET", "/v1/models"))
    listed = _get(data, "data")
    names = [str(_get(item, "id")) for item in listed] if isinstance(listed, list) else []
    problem = ""
    if response.status != 200 or not isinstance(listed, list):
        problem = f"/v1/models answered {_describe(response)}"
    elif asked.model not in names:
        problem = f"{asked.model} is not listed; listed are {', '.join(names[:8]) or 'none'}"
    yield _clause(
        "models", problem, "Ask by the name that the server gave the model (served-model-name)", names, asked.model
    )


def _check_usage(data: object) -> str:
    """Return what is wrong with the counts of tokens, empty where they add up."""
    found = (_get(data, "usage", key) for key in ("prompt_tokens", "completion_tokens", "total_tokens"))
    counts = [count for count in found if isinstance(count, int) and not isinstance(count, bool)]
    if len(counts) < _COUNTS:
        return "usage is missing or has no numbers"
    prompt, made, total = counts
    if prompt < 1 or not 0 < made <= _TOKENS or total != prompt + made:
        return f"usage does not add up: {prompt} + {made} = {total}, at most {_TOKENS} were asked for"
    return ""


def _check_answer(
    name: str, response: HttpResponse, data: object, asked: ModelRequest, text: object
) -> Iterator[Check]:
    problem = ""
    if response.status != 200:
        problem = f"answered {_describe(response)}"
    elif not isinstance(text, str):
        problem = f"its answer has no text: {_describe(response)}"
    elif _get(data, "choices", 0, "finish_reason") not in ("stop", "length"):
        problem = f"finish_reason is {_get(data, 'choices', 0, 'finish_reason')!r}, neither stop nor length"
    elif _get(data, "model") != asked.model:
        problem = f"the answer is of model {_get(data, 'model')!r}, asked was {asked.model!r}"
    fix = "Compare chat template, tokenizer and name of the model with those of the training"
    yield _clause(name, problem, fix, text if isinstance(text, str) else None)
    if response.status == 200:
        yield _clause(
            f"{name}_usage", _check_usage(data), "Clients that count tokens cannot use it", _get(data, "usage")
        )


def _check_chat(client: HttpClient, asked: ModelRequest) -> Iterator[Check]:
    response, data = _post(client, "/v1/chat/completions", asked.conversation())
    yield from _check_answer("chat", response, data, asked, _get(data, "choices", 0, "message", "content"))


def _check_completion(client: HttpClient, asked: ModelRequest) -> Iterator[Check]:
    response, data = _post(client, "/v1/completions", asked.completion())
    yield from _check_answer("completion", response, data, asked, _get(data, "choices", 0, "text"))


def _check_stream(client: HttpClient, asked: ModelRequest) -> Iterator[Check]:
    response = client.send(
        json_request("POST", "/v1/chat/completions", body=asked.conversation(stream=True)), allow=_ANY
    )
    kind = response.content_type()
    if response.status != 200 or kind != "text/event-stream":
        problem = f"answered {response.status} {kind}, not a text/event-stream"
        yield _clause("chat_stream", problem, "Switch streaming on in the server or in the proxy before it")
        return
    lines = response.body.decode("utf-8", "replace").splitlines()
    events = [line.removeprefix("data:").strip() for line in lines if line.startswith("data:")]
    yield _clause("chat_stream", _find_stream_problem(events), "The stream was cut, or a proxy changes it", len(events))
    done = bool(events) and events[-1] == "[DONE]"
    problem = "" if done else f"its last event is not [DONE] but {one_line(events[-1])[:_SEEN] if events else 'none'}"
    yield _clause("chat_stream_done", problem, "Clients that wait for [DONE] hang until their timeout", done, True)


def _find_stream_problem(events: list[str]) -> str:
    finished = False
    pieces = [event for event in events if event != "[DONE]"]
    for event in pieces:
        try:
            data = json.loads(event)
        except ValueError:
            return f"an event is not JSON: {one_line(event)[:_SEEN]}"
        finished = finished or _get(data, "choices", 0, "finish_reason") in ("stop", "length")
    return "" if pieces and finished else "no event has a finish_reason"


def _check_refusal(
    name: str, response: HttpResponse, data: object, wanted: tuple[int, ...], why: str
) -> Iterator[Check]:
    expected = " or ".join(map(str, wanted))
    problem = ""
    if response.status not in wanted:
        problem = f"{why} answered {response.status}, not {expected}"
    elif _get(data, "error") is None and _get(data, "detail") is None and _get(data, "message") is None:
        problem = f"{why} answered {response.status} without a reason"
    yield _clause(
        name, problem, "Clients cannot tell their own mistake from a broken server", response.status, expected
    )


def _check_unknown_model(client: HttpClient, asked: ModelRequest) -> Iterator[Check]:
    response, data = _post(client, "/v1/completions", asked.completion(model=_UNKNOWN))
    yield from _check_refusal("unknown_model", response, data, (400, 404), "a model that does not exist")


def _check_bad_request(client: HttpClient, asked: ModelRequest) -> Iterator[Check]:
    response, data = _post(client, "/v1/chat/completions", {"model": asked.model})
    yield from _check_refusal("bad_request", response, data, (400, 422), "a request without messages")


def _check_logprobs(client: HttpClient, asked: ModelRequest) -> Iterator[Check]:
    """Compare the first token after each prompt with that of the training side."""
    fix = "Compare tokenizer, merged adapter and weights with those of the training: the server has another model"
    wrong: list[str] = []
    for number, reference in enumerate(asked.references, 1):
        body = asked.completion(prompt=reference.prompt, max_tokens=1, logprobs=1)
        response, data = _post(client, "/v1/completions", body)
        token = _get(data, "choices", 0, "logprobs", "tokens", 0)
        logprob = _get(data, "choices", 0, "logprobs", "token_logprobs", 0)
        if not isinstance(token, str) or not isinstance(logprob, (int, float)) or isinstance(logprob, bool):
            problem = f"the answer to prompt {number} has no log-probabilities: {_describe(response)}"
            yield _clause("logprobs", problem, "Nothing was compared: switch logprobs on in the server")
            return
        found = reference.find_problem(token, logprob, asked.tolerance)
        wrong += [f"prompt {number} {found}"] if found else []
    total = len(asked.references)
    problem = f"{len(wrong)} of {total} prompts differ: {wrong[0]}" if wrong else ""
    yield _clause("logprobs", problem, fix, total - len(wrong), total)
