# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What differs between a recorded run and the job that is asked for now."""

from __future__ import annotations

import json
import os
import typing as t

from ....module_utils._model import validators
from ....module_utils._model.errors import InputError, RefusedError
from ....module_utils._model.job import Job, drop_removed, is_changed_default, to_yaml_names
from ....module_utils._model.run_record import RecordedTemplate, RunRecord
from .load import load_recorded_job

_SHOWN = 60
# So much of what is equal is shown before the first difference.
_BEFORE = 20


def describe_changes(before: RunRecord, job: Job, code_sha256: str | None) -> list[str]:
    """Return each option that differs, with both values, or that the content of the code does; nothing if all is equal.

    A gang that is to continue with fewer nodes because some were lost is the same job.
    """
    known, wanted = _fill_defaults(before), to_yaml_names(job)
    if job.restart.on_lost_node == "shrink" and wanted["nodes"] < (before.job.get("nodes") or 0):
        known["nodes"] = wanted["nodes"]
    differs = list(_differences(known, wanted))
    codes = before.code_sha256, code_sha256
    return differs + (["the content of job.code"] if not differs and all(codes) and codes[0] != codes[1] else [])


def refuse_other_job(run_id: str, differs: t.Sequence[str], fix: str) -> RefusedError:
    """Return the error for a run that has succeeded, and is asked for with another job."""
    return RefusedError(f"run {run_id} has already succeeded with another job: {', '.join(differs)}", fix)


def find_template(given: t.Any, before: RunRecord | None, job: Job, code_sha256: str | None) -> RecordedTemplate | None:
    """Return the template of the catalogue that a job is recorded with.

    :param given: the one that its options name. Without it, it is that of the recorded run, while the job is the same.
    :raises InputError: for one that cannot be read.
    """
    if given:
        return validators.section(RecordedTemplate)(given, "catalogue_template")
    if before is None or before.catalogue_template is None or describe_changes(before, job, code_sha256):
        return None
    return before.catalogue_template


def _fill_defaults(before: RunRecord) -> dict[str, object]:
    """Return the recorded job with the defaults of options that did not exist when it was recorded."""
    try:
        full = to_yaml_names(load_recorded_job(before))
    except InputError:
        # Of a version with other rules.
        return dict(before.job)
    return _fill(drop_removed(before.job), full)


def _fill(known: t.Mapping[str, object], full: t.Mapping[str, object]) -> dict[str, object]:
    """Return ``known`` with what ``full`` has beside it, mappings key by key."""
    filled = {**full, **known}
    for key, value in known.items():
        more = full.get(key)
        if isinstance(value, dict) and isinstance(more, dict):
            filled[key] = _fill(value, more)
    return filled


def _differences(known: t.Mapping[str, object], wanted: t.Mapping[str, object], path: str = "") -> t.Iterator[str]:
    """Yield each option that differs with both values; of variables only the names, for people put secrets there."""
    for key in sorted({*known, *wanted}):
        old, new = known.get(key), wanted.get(key)
        # An option that did not exist when the run was recorded differs only where it is set.
        if old == new or (key not in known and not new) or is_changed_default(f"{path}{key}", old, new):
            continue
        if isinstance(old, dict) and isinstance(new, dict):
            yield from _differences(old, new, f"{path}{key}.")
        elif path == "env.":
            yield f"{path}{key}"
        else:
            yield f"{path}{key} ({_shorten(old, new)} recorded, {_shorten(new, old)} requested)"


def _shorten(value: object, other: object) -> str:
    """Return a value as JSON; of a long one the part from which on it differs from the other one."""
    text, beside = (json.dumps(item, ensure_ascii=False) for item in (value, other))
    if max(len(text), len(beside)) <= _SHOWN:
        return text
    start = max(0, len(os.path.commonprefix([text, beside])) - _BEFORE)
    shown = text[start : start + _SHOWN]
    return f"{'…' if start else ''}{shown}{'…' if len(text) > start + _SHOWN else ''}"
