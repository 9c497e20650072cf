# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The causes that the record and the events of a run name: of its end, or of why it makes no step. Pure rules."""

from __future__ import annotations

import typing as t

from ....module_utils._model.verdict import Cause
from ..verdict.cause_info import Backend
from .file import diagnose_text
from .known_run import KnownRun
from .live_causes import build_live_cause, cause_weight, explained_codes, find_fix, is_peer_gone
from .live_pods import find_code

# What a run ended by -> the cause whose fix helps.
_END_CODES: t.Mapping[str, str] = {
    "disk_full": "disk_full",
    "out_of_memory": "oom_host",
    "nan": "loss_nan",
    "stalled": "stalled_stopped",
    "hang": "stalled_stopped",
    "uneven_resume": "uneven_resume",
}
# The same of jobs whose ranks have GPUs: what else NCCL can record of it.
_NCCL_CODES: t.Final[t.Mapping[str, str]] = {"stalled_stopped": "stalled_nccl"}
# Causes of which all nodes that a line names are part.
_OF_THE_GANG: t.Final = ("uneven_resume",)
# Ends whose reason the words of the record name, where anything does.
_CRASHES: t.Final = ("crash", "fatal_exit_code")


def find_end_code(cause: str, detail: str, *, gpus: bool = False) -> str | None:
    """Return the cause code of a run's end by its word and its line, None where these name none.

    :param gpus: whether its ranks have GPUs, so that they train over NCCL.
    """
    if cause in _CRASHES:
        return find_named_code(detail)
    if cause == "node_lost":
        return "node_unreachable"
    code = _END_CODES.get(cause) or find_code(cause, detail)
    return _NCCL_CODES.get(code, code) if code and gpus else code


def find_named_code(text: str) -> str | None:
    """Return the cause that a text names: what explains others, then what stopped a job, then what followed from it."""
    found = diagnose_text(text, "log").causes if text else ()
    if found and {*explained_codes(found[0].code)} & {item.code for item in found[1:]}:
        return found[0].code
    order = {"fatal": 0, "secondary": 1}
    codes = sorted((order[cause_weight(item.code)], item.code) for item in found if cause_weight(item.code) in order)
    return codes[0][1] if codes else None


def find_known_causes(known: KnownRun | None, *, stands: bool, backend: Backend | None) -> list[Cause]:
    """Return what the record and the events of a run name as the cause: of its end, or of what keeps it from training.

    :param stands: whether it has not ended and makes no step.
    """
    if known is None:
        return []
    if known.has_failed:
        return _find_end(known, backend)
    lost = known.losing_node if stands and not known.over else None
    if lost is not None:
        return [build_live_cause("node_unreachable", lost[1], lost[0])]
    crash = known.attempt.describe_crash() if known.attempt and stands else ""
    if crash and known.attempt and known.attempt.first_failure:
        return [build_live_cause("rank_ended", crash, known.attempt.first_failure.node)]
    return []


def _find_end(known: KnownRun, backend: Backend | None) -> list[Cause]:
    code, attempt = find_end_code(known.cause, known.detail, gpus=known.gpus), known.attempt
    if code is None and known.cause not in _CRASHES:
        return []
    if attempt and attempt.first_left and code and is_peer_gone([code]):
        # The others failed because they waited for a rank that had left.
        return [build_live_cause("rank_left", attempt.describe_left(), attempt.first_left[1].node)]
    code = code or "rank_ended"
    # The line of a run's end has what to do, too.
    fix = find_fix(code, backend, over=True) or ""
    text = (known.detail.removesuffix(fix) if fix else known.detail).rstrip(". ")
    if code == "checkpoint_failed" and known.left and known.left not in text:
        text = f"{text}; {known.left}"
    return [build_live_cause(code, text, _find_node(code, text, known))] if text else []


def _find_node(code: str, text: str, known: KnownRun) -> str | None:
    """Return the node that the line of a run's end is about, None where it is about the gang or names none."""
    if code in _OF_THE_GANG:
        return None
    places = [(at, name) for name in known.nodes if (at := text.find(name)) >= 0]
    failed = known.attempt.failed_node if known.attempt is not None else None
    return min(places)[1] if places else failed
