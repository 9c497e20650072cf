# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where a job's steps are tracked: the binding of a tracker, and the experiment there."""

from __future__ import annotations

import dataclasses
import re
import typing as t

from . import validators as f
from .binding import NAME_LIMIT
from .errors import InputError

if t.TYPE_CHECKING:
    from .job import Job

PROVIDERS: t.Final = ("mlflow", "wandb")
# MLflow keeps "latest" and "v1" for itself.
ALIAS: t.Final = "trained"
_ALIAS_LIMIT: t.Final = 40
_MODEL: t.Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_MODEL_SHOWN: t.Final = 60
_RESERVED: t.Final = re.compile(r"latest|v[0-9]+")
# What programs read; of W&B also what makes all attempts one run.
_SET: t.Final = (
    *("MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_NAME", "MLFLOW_TRACKING_TOKEN", "MLFLOW_TRACKING_USERNAME"),
    *("MLFLOW_TRACKING_PASSWORD", "MLFLOW_TRACKING_SERVER_CERT_PATH"),
    *("WANDB_BASE_URL", "WANDB_API_KEY", "WANDB_PROJECT", "WANDB_RUN_ID", "WANDB_RUN_GROUP", "WANDB_RESUME"),
)


def _read_model(value: t.Any, path: str) -> str:
    """Return the name of a registered model: it becomes a part of addresses and filters of MLflow."""
    text = f.text(value, path)
    if not _MODEL.fullmatch(text):
        raise InputError(
            path, f"'{text[:_MODEL_SHOWN]}' cannot be a model's name", "Use letters, digits, '.', '_' and '-'"
        )
    return text


@dataclasses.dataclass(frozen=True, slots=True)
class Tracking:
    """The tracker of a job. ``experiment``: MLflow's experiment or W&B's project; the job's name where it is null.

    ``log``: the steps that are read of the run are logged by the controller, for programs that log none themselves.
    ``model``: the registered model of which a successful run's last checkpoint becomes a version, with ``alias``.
    """

    binding: str = f.field(f.name(NAME_LIMIT))
    experiment: str | None = f.field(f.text, None)
    log: bool = f.field(f.boolean, False)
    model: str | None = f.field(_read_model, None)
    alias: str = f.field(f.name(_ALIAS_LIMIT), ALIAS)


def parse(value: t.Any, path: str) -> Tracking:
    """Return the tracker that a mapping describes, or that a name alone is the binding of."""
    return f.section(Tracking)({"binding": value} if isinstance(value, str) else value, path)


def check_model(job: Job) -> None:
    """Refuse a model that could not be registered: MLflow ties a version to the run that the controller logs."""
    tracking = job.tracking
    if tracking is None:
        return
    if tracking.model and not tracking.log:
        raise InputError("job.tracking.model", "needs log: true", "A version is of the run that has the steps")
    if _RESERVED.fullmatch(tracking.alias):
        raise InputError("job.tracking.alias", f"'{tracking.alias}' is MLflow's own", f"Choose another, as {ALIAS}")


def split_model(text: str, option: str) -> tuple[str, str]:
    """Return name and alias of ``NAME`` or ``NAME@ALIAS``."""
    name, _at, alias = text.partition("@")
    return _read_model(name, option), alias or ALIAS


def check_variables(job: Job) -> None:
    """Refuse variables of the job that its tracker sets: two places would say where the steps go."""
    for where, names in (("job.env", [*job.env]), ("job.secret_refs", [ref.name for ref in job.secret_refs])):
        taken = next((name for name in names if name in _SET), None)
        if job.tracking and taken is not None:
            raise InputError(f"{where}.{taken}", "is set by job.tracking", "Leave it out, or leave tracking out")
