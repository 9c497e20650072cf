# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the training side makes of prompts, and whether a server makes the same of them.

A wrong tokenizer, a wrong merge of an adapter or other weights answer fluently, and are seen by this alone. Compared is
the first token that follows a prompt, and its log-probability: both are the same however a server samples.
"""

from __future__ import annotations

import dataclasses
import json
import math
import pathlib
import typing as t

from ....module_utils._model.errors import InputError, one_line

_MOST = 1000
_FIX = "Make it with examples/serving/reference_logprobs.py from the folder of the model"
# How servers write a token that is not text by itself.
_BYTES = ("bytes:", "\ufffd")


@dataclasses.dataclass(frozen=True, slots=True)
class Reference:
    """A prompt, the token that follows it, and that token's log-probability (natural logarithm)."""

    prompt: str
    token: str
    logprob: float

    def find_problem(self, token: str, logprob: float, tolerance: float) -> str:
        """Return how a server's answer differs, empty where it does not."""
        is_text = not any(item.startswith(_BYTES) for item in (self.token, token))
        if is_text and token != self.token:
            return f"is followed by {token!r} ({logprob:.3f}), in training by {self.token!r} ({self.logprob:.3f})"
        if abs(logprob - self.logprob) > tolerance:
            return f"{self.token!r} has the log-probability {logprob:.4f}, in training {self.logprob:.4f}"
        return ""


def read_references(path: pathlib.Path) -> tuple[Reference, ...]:
    """Return the lines of a file: ``{"prompt": TEXT, "token": TEXT, "logprob": NUMBER}`` each.

    :raises InputError: naming the line that is none of that.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as exc:
        reason = getattr(exc, "strerror", None) or "not text"
        raise InputError("reference", f"cannot read {path}: {reason}", _FIX) from None
    found = [_parse(line, number) for number, line in enumerate(lines, 1) if line.strip()]
    if not 0 < len(found) <= _MOST:
        raise InputError("reference", f"{path} has {len(found)} prompts, 1 to {_MOST} are possible", _FIX)
    return tuple(found)


def _parse(line: str, number: int) -> Reference:
    try:
        value: t.Any = json.loads(line)
        prompt, token, logprob = value["prompt"], value["token"], value["logprob"]
    except (ValueError, LookupError, TypeError, RecursionError):
        raise InputError(f"reference, line {number}", f"lacks a key: {one_line(line)[:80]}", _FIX) from None
    is_number = isinstance(logprob, (int, float)) and not isinstance(logprob, bool) and math.isfinite(logprob)
    if not isinstance(prompt, str) or not isinstance(token, str) or not is_number or logprob > 0:
        raise InputError(f"reference, line {number}", "has a value of another type, or a logprob above 0", _FIX)
    return Reference(prompt, token, float(logprob))
