# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where a job comes from: the options with their template, or the record of a run that is to continue."""

from __future__ import annotations

import itertools
import pathlib
import typing as t

import yaml

from ....module_utils._model import job_templates, validators
from ....module_utils._model.errors import RefusedError
from ....module_utils._model.job import Job, drop_removed, parse_job
from ....module_utils._model.job_backends import choose_backend
from ....module_utils._model.run_record import RunRecord
from ..shared.request import RunRequest
from ..shared.state_dir import RUN_ID_LIMIT, StateHome, load_record

Dict = dict[str, t.Any]


def load_job(request: RunRequest, home: StateHome) -> Job:
    """Return the job that the options describe, with its template resolved, or the one of a recorded run.

    ``placement.backend: auto`` stands for the backend of the recorded run, else for what there is, which is reported.

    :raises InputError: for what is wrong in the job.
    """
    options = request.options
    known = {**job_templates.PRESETS, **_read_presets(options, request.base)}
    run_id = options.get("run_id")
    record = load_record(home.run_folder(str(run_id))) if run_id else None

    def choose(has_image: bool) -> str:
        if record is not None:
            return record.backend
        choice = choose_backend(has_image, request.surroundings)
        request.progress.say(f"placement.backend: auto is {choice.backend}: {choice.reason}")
        return choice.backend

    if options.get("job"):
        return parse_job(options["job"], known, choose)
    if record is None:
        raise RefusedError("job: is required", "Set muster_job, or muster_run_id to continue a recorded run")
    return parse_job(drop_template(record.job), known, choose)


def find_drill_id(home: StateHome, run_id: str) -> str:
    """Return the run that a drill is for: ``run_id``, or once that has succeeded, the next run of its own.

    A drill that was interrupted is continued.
    """
    for number in itertools.count():
        name = f"{run_id[: RUN_ID_LIMIT - 10]}-drill-{number}" if number else run_id
        record = load_record(home.run_folder(name))
        if record is None or not record.is_ended or (not number and record.outcome != "succeeded"):
            return name
    raise AssertionError("counting does not end")


def load_recorded_job(record: RunRecord) -> Job:
    """Return the job of a recorded run, on the backend that it ran on."""
    return parse_job(drop_template(record.job), {}, lambda _has_image: record.backend)


def drop_template(job: t.Mapping[str, object]) -> Dict:
    """Drop nulls, options of earlier versions and the resolved template: the recorded job is complete as it stands."""
    return {key: value for key, value in drop_removed(job).items() if value is not None and key != "template"}


def _read_presets(options: Dict, base: pathlib.Path) -> Dict:
    """Return a team's templates: ``NAME.yml`` in the given folders; the first folder wins."""
    found: Dict = {}
    for folder in options.get("template_paths") or []:
        for place in sorted(pathlib.Path(base, str(folder)).expanduser().glob("*.yml")):
            try:
                content = yaml.safe_load(place.read_text()) or {}
            except (OSError, ValueError, yaml.YAMLError) as exc:
                raise RefusedError(f"{place}: is not readable as YAML", "Fix it or remove it") from exc
            found.setdefault(place.stem, validators.dictionary(content, str(place)))
    return found
