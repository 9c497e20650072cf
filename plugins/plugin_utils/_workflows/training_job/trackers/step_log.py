# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``job.tracking.log``: the steps that are read of a run are logged to MLflow beside following it.

The run's own metrics file is the queue, and how far it was sent is kept beside it: while the tracker is away nothing is
lost, the next command sends the rest, and what is sent twice after an answer was lost changes nothing there.
"""

from __future__ import annotations

import contextlib
import math
import pathlib
import threading
import typing as t

from .....module_utils._model.errors import MusterError, RefusedError
from .....module_utils._node import files
from ...shared import bindings, credentials
from ...shared.progress import Progress
from ...shared.state_dir import StateHome, load_record
from .tracking import experiment_of, find_stored_address

if t.TYPE_CHECKING:
    from .....module_utils._model.binding import Binding
    from .....module_utils._model.job import Job
    from .....module_utils._model.run_record import RunRecord
    from ...._services.tracking.mlflow_runs import Metric, MlflowRuns
    from .tracking import BoundTracking

STATE_FILE: t.Final = "tracking.json"
# MLflow takes 1000 metrics, params and tags together.
BATCH: t.Final = 900
_OPTION: t.Final = "job.tracking.binding"
_EVERY_S: t.Final = 5.0
# Keys of a line that are no figure of a step.
_OWN: t.Final = ("at", "late_s", "step", "rank", "checkpoint_step", "resumed_from_step", "world_size", "epoch_step")
_ENDS: t.Final = {"succeeded": "FINISHED", "cancelled": "KILLED"}


def read_metrics(data: bytes) -> list[Metric]:
    """Return the figures of whole lines of metrics.jsonl as MLflow takes them: key, value, timestamp (ms), step."""
    found = []
    for line in files.parse_json_lines(data):
        step, at = line.get("step"), line.get("at")
        if isinstance(step, int) and isinstance(at, int | float):
            found += [
                {"key": key, "value": _plain(value), "timestamp": int(at * 1000), "step": step}
                for key, value in line.items()
                if key not in _OWN and isinstance(value, int | float) and not isinstance(value, bool)
            ]
    return found


def _plain(value: float) -> float | str:
    # JSON has no NaN; MLflow takes its name.
    return value if math.isfinite(value) else str(value).replace("nan", "NaN").replace("inf", "Infinity")


class StepLog:
    """Sends what is new of a run's metrics; ``send`` returns the problem, empty without one.

    :param endpoint: the address of the server, for the address of the run's page there.
    :param model: the registered model of which the last checkpoint becomes a version, with the alias of that.
    :param stored_at: the address below which the run's checkpoints are stored, empty without a store.
    """

    def __init__(
        self,
        runs: MlflowRuns,
        folder: pathlib.Path,
        experiment: str,
        endpoint: str,
        *,
        model: tuple[str, str] | None = None,
        stored_at: str = "",
    ) -> None:
        self._runs, self._folder, self._experiment, self._endpoint = runs, folder, experiment, endpoint
        self._model, self._stored_at = model, stored_at
        self._place = folder / STATE_FILE

    def send(self) -> str:
        """Send what is new, and how the run ended once it has."""
        try:
            state = self._begin()
            self._send_lines(state)
            record = load_record(self._folder)
            outcome = record.outcome if record is not None and record.is_ended else None
            if outcome and state.get("ended") != outcome:
                self._runs.end_run(state["run_id"], _ENDS.get(outcome, "FAILED"))
                if record is not None and outcome == "succeeded":
                    self._register(state, record)
                self._keep(state, ended=outcome)
        except MusterError as error:
            return error.message
        return ""

    def _register(self, state: dict[str, t.Any], record: RunRecord) -> None:
        """Make the newest checkpoint a version of the model: the stored one where the job has a store.

        The bytes stay where they are; the version has a link, and what ``fetch`` finds them by.
        """
        saved = record.stored if self._stored_at else record.checkpoint
        if self._model is None or saved is None or not saved.path:
            return
        name = name_in_folder(saved.path, record.run_id)
        model, alias = self._model
        source = f"{self._stored_at or f'muster://{self._folder.parents[1].name}/{record.run_id}'}/{name}"
        tags = {"muster.run_id": record.run_id, "muster.checkpoint": name}
        tags |= {"muster.step": str(saved.step)} if saved.step is not None else {}
        tags |= {"muster.step_by": str(saved.extra["step_by"])} if "step_by" in saved.extra else {}
        version = self._runs.register_model(model, alias, state["run_id"], source, tags)
        self._keep(state, model=model, version=version, alias=alias)

    def _begin(self) -> dict[str, t.Any]:
        """Return what is known of the run there, which is made the first time."""
        state = files.read_json(self._place)
        if isinstance(state, dict):
            return state
        experiment_id = self._runs.find_experiment(self._experiment)
        name = self._folder.name
        run_id = self._runs.create_run(experiment_id, name, {"muster.run_id": name})
        url = f"{self._endpoint}/#/experiments/{experiment_id}/runs/{run_id}"
        return self._keep({}, run_id=run_id, experiment_id=experiment_id, url=url, sent=0)

    def _send_lines(self, state: dict[str, t.Any]) -> None:
        with contextlib.suppress(FileNotFoundError), (self._folder / "metrics.jsonl").open("rb") as handle:
            handle.seek(state["sent"])
            size = 0
            batch: list[Metric] = []
            for line in handle:
                if not line.endswith(b"\n"):
                    break
                metrics = read_metrics(line)
                if len(batch) + len(metrics) > BATCH:
                    self._send_batch(state, batch, size)
                    size, batch = 0, []
                size += len(line)
                batch += metrics
            self._send_batch(state, batch, size)

    def _send_batch(self, state: dict[str, t.Any], batch: t.Sequence[Metric], size: int) -> None:
        """Send what ``size`` bytes of the file hold."""
        if batch:
            self._runs.log(state["run_id"], batch)
        if size:
            self._keep(state, sent=state["sent"] + size)

    def _keep(self, state: dict[str, t.Any], **values: t.Any) -> dict[str, t.Any]:
        state.update(values)
        files.write_json(self._place, state)
        return state


def name_in_folder(path: str, run_id: str) -> str:
    """Return where a checkpoint is below the folder of the run's checkpoints, as the program's path says."""
    _before, found, after = path.rpartition(f"/{run_id}/")
    return after.removeprefix("checkpoints/") if found else path.rstrip("/").rpartition("/")[2]


def _open(binding: Binding, keys: t.Mapping[str, str], folder: pathlib.Path, job: Job, stored_at: str) -> StepLog:
    # Late: it needs the HTTP client, for which every other run would wait.
    from ...._services.tracking.mlflow_runs import MlflowRuns

    runs, tracking = MlflowRuns(binding, keys), job.tracking
    experiment = experiment_of(job)
    model = (tracking.model, tracking.alias) if tracking and tracking.model else None
    return StepLog(runs, folder, experiment, binding.endpoint, model=model, stored_at=stored_at)


def send_rest(
    home: StateHome, job: Job, folder: pathlib.Path, progress: Progress, open_cluster: credentials.OpenCluster
) -> None:
    """Send what was left of the steps of a run that has ended.

    :param open_cluster: the cluster of the job, which may have the tracker's credentials in a Secret.
    """
    if job.tracking is None or not job.tracking.log:
        return
    binding = bindings.load_binding(home, job.tracking.binding, _OPTION)
    keys = credentials.read_tracker_keys(binding, _OPTION, open_cluster)
    problem = _open(binding, keys, folder, job, find_stored_address(home, job, folder.name)).send()
    if problem:
        progress.say(f"warning: steps are not logged to {binding.name}, and are kept: {problem}")


def _prepare_experiment(tracked: BoundTracking | None) -> None:
    """Have the experiment there before the ranks begin: of several that make it at once, all but one would fail."""
    if tracked is None or tracked.binding.provider == "wandb":
        return
    from ...._services.tracking.mlflow_runs import MlflowRuns

    try:
        MlflowRuns(tracked.binding, tracked.keys).find_experiment(tracked.experiment)
    except RefusedError:
        raise
    except MusterError:
        # The controller may not reach what its nodes do.
        return


@contextlib.contextmanager
def log_steps(tracked: BoundTracking | None, folder: pathlib.Path, progress: Progress) -> t.Iterator[None]:
    """Log the steps of a run while it is followed, and what is left of them at the end.

    :raises RefusedError: the experiment was deleted, so that the program could not log either.
    """
    _prepare_experiment(tracked)
    if tracked is None or not tracked.logs:
        yield
        return
    log = _open(tracked.binding, tracked.keys, folder, tracked.job, tracked.stored_at)
    ended = threading.Event()
    said: list[str] = []

    def send() -> None:
        # A run that was not started has no folder.
        problem = log.send() if (folder / "run.json").exists() else ""
        if problem and not said:
            said.append(problem)
            progress.say(f"warning: steps are not logged to {tracked.binding.name}, and are kept: {problem}")
        elif not problem and said:
            said.clear()
            progress.say(f"{tracked.binding.name} takes the steps again")

    def work() -> None:
        while not ended.wait(_EVERY_S):
            send()

    thread = threading.Thread(target=work, name="tracking", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        send()
        if said:
            progress.say(f"the same command sends the rest of the steps to {tracked.binding.name} when it answers")
