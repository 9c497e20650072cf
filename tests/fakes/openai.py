# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A server of the OpenAI-compatible API on loopback, as strict as its reference, with faults by name.

Source: the API reference of OpenAI (models, chat/completions, completions, streams) and NIM's /v1/health/ready. What real
servers were seen to do differently are the faults.
"""

from __future__ import annotations

import json
import typing as t
from collections.abc import Collection, Mapping

from ansible_collections.muster.training.tests.support.loopback import Api

Reply = tuple[int, t.Any, Mapping[str, str]]
TEXT = " are designed to"


class OpenAi(Api):
    """Serves one model. ``faults`` are names of what is wrong; ``key`` is the API key that it wants, if any."""

    def __init__(self, model: str = "char-lm", faults: Collection[str] = (), key: str = "") -> None:
        self.model, self.faults, self.key = model, set(faults), key
        health = {} if "no health" in self.faults else {"GET /v1/health/ready": self._wrap(lambda _body: (200, {}, {}))}
        super().__init__(
            {
                **health,
                "GET /v1/models": self._wrap(self._models),
                "POST /v1/chat/completions": self._wrap(self._chat),
                "POST /v1/completions": self._wrap(self._complete),
            }
        )

    def _wrap(self, handler: t.Callable[[dict[str, t.Any]], Reply]) -> t.Callable[..., Reply]:
        def serve(_query: object, headers: Mapping[str, str], body: bytes) -> Reply:
            if self.key and headers.get("authorization") != f"Bearer {self.key}":
                return 401, {"error": {"message": "Incorrect API key provided"}}, {}
            return handler(json.loads(body) if body else {})

        return serve

    def _models(self, _body: dict[str, t.Any]) -> Reply:
        if "html" in self.faults:
            return 200, b"<html>log in</html>", {"Content-Type": "text/html"}
        listed = [] if "no models" in self.faults else [{"id": self.model, "object": "model", "owned_by": "x"}]
        return 200, {"object": "list", "data": listed}, {}

    def _refuse(self, body: dict[str, t.Any], key: str) -> Reply | None:
        if key not in body or not body[key]:
            status = 500 if "500 for mistakes" in self.faults else 400
            return status, {"error": {"message": f"{key} is required"}}, {}
        if body.get("model") != self.model and "any model" not in self.faults:
            error: dict[str, t.Any] = {"error": {"message": "The model does not exist", "code": "model_not_found"}}
            return 404, {} if "no reason" in self.faults else error, {}
        return None

    def _answer(self, kind: str, choice: dict[str, t.Any]) -> dict[str, t.Any]:
        usage = {"prompt_tokens": 5, "completion_tokens": 4, "total_tokens": 9}
        if "usage" in self.faults:
            usage["total_tokens"] = 4
        name = f"{self.model}@main" if "renamed" in self.faults else self.model
        end = None if "no end" in self.faults else "stop"
        whole = {"id": "x", "object": kind, "created": 1, "model": name, "usage": usage}
        if "no usage" in self.faults:
            del whole["usage"]
        return {**whole, "choices": [{"index": 0, "finish_reason": end, **choice}]}

    def _complete(self, body: dict[str, t.Any]) -> Reply:
        text: t.Any = None if "no text" in self.faults else TEXT
        choice: dict[str, t.Any] = {"text": text}
        if body.get("logprobs") and "no logprobs" not in self.faults:
            # As of the legacy completions: lists of as many items as tokens were made.
            token, logprob = (" of", -0.2) if "other model" in self.faults else (" are", -0.105)
            choice["logprobs"] = {"tokens": [token], "token_logprobs": [logprob], "text_offset": [0]}
        return self._refuse(body, "prompt") or (200, self._answer("text_completion", choice), {})

    def _chat(self, body: dict[str, t.Any]) -> Reply:
        refusal = self._refuse(body, "messages")
        if refusal:
            return refusal
        if "no template" in self.faults:
            return 400, {"error": {"message": "no chat template"}}, {}
        if not body.get("stream"):
            return 200, self._answer("chat.completion", {"message": {"role": "assistant", "content": TEXT}}), {}
        if "no stream" in self.faults:
            return 200, self._answer("chat.completion", {"message": {"role": "assistant", "content": TEXT}}), {}
        events = [self._chunk({"content": piece}, None) for piece in TEXT.split()]
        events += [] if "cut stream" in self.faults else [self._chunk({}, "stop")]
        lines = [json.dumps(event) for event in events]
        lines += ["{torn"] if "torn stream" in self.faults else []
        lines += [] if {"no done", "cut stream"} & self.faults else ["[DONE]"]
        return 200, "".join(f"data: {line}\n\n" for line in lines).encode(), {"Content-Type": "text/event-stream"}

    def _chunk(self, delta: dict[str, str], end: str | None) -> dict[str, t.Any]:
        choice = {"index": 0, "delta": delta, "finish_reason": end}
        return {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": self.model, "choices": [choice]}
