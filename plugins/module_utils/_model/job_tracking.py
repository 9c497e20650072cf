# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where a job's steps are tracked: the binding of a tracker, and the experiment there.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import dataclasses
import typing as t

from . import validators as f
from .binding import NAME_LIMIT
from .errors import InputError

if t.TYPE_CHECKING:
    from .job import Job

PROVIDERS: t.Final = ("mlflow", "wandb")
# What programs read; of W&B also what makes all attempts one run.
_SET: t.Final = (
    *("MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_NAME", "MLFLOW_TRACKING_TOKEN", "MLFLOW_TRACKING_USERNAME"),
    *("MLFLOW_TRACKING_PASSWORD", "MLFLOW_TRACKING_SERVER_CERT_PATH"),
    *("WANDB_BASE_URL", "WANDB_API_KEY", "WANDB_PROJECT", "WANDB_RUN_ID", "WANDB_RUN_GROUP", "WANDB_RESUME"),
)


@dataclasses.dataclass(frozen=True, slots=True)
class Tracking:
    """The tracker of a job. ``experiment``: MLflow's experiment or W&B's project; the job's name where it is null.

    ``log``: the steps that are read of the run are logged by the controller, for programs that log none themselves.
    """

    binding: str = f.field(f.name(NAME_LIMIT))
    experiment: str | None = f.field(f.text, None)
    log: bool = f.field(f.boolean, False)


def parse(value: t.Any, path: str) -> Tracking:
    """Return the tracker that a mapping describes, or that a name alone is the binding of."""
    return f.section(Tracking)({"binding": value} if isinstance(value, str) else value, path)


def check_variables(job: Job) -> None:
    """Refuse variables of the job that its tracker sets: two places would say where the steps go."""
    for where, names in (("job.env", [*job.env]), ("job.secret_refs", [ref.name for ref in job.secret_refs])):
        taken = next((name for name in names if name in _SET), None)
        if job.tracking and taken is not None:
            raise InputError(f"{where}.{taken}", "is set by job.tracking", "Leave it out, or leave tracking out")
