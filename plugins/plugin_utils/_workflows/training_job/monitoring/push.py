# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``job.monitoring``: a run's metrics, sent to Prometheus beside following it.

They are read from the run's own files by a thread. While Prometheus is away they are dropped, and that is said once: a
run never waits for them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import pathlib
import threading
import time
import typing as t
import urllib.parse

from .....module_utils._model import timestamps
from .....module_utils._model.binding import Binding
from .....module_utils._model.errors import InputError, MusterError
from .....module_utils._model.job import Job
from .....module_utils._model.run_history import RunHistory
from .....module_utils._model.run_record import RunRecord
from .....module_utils._model.service import MONITORING, check_endpoint
from .....module_utils._node import files
from ...shared import bindings, credentials
from ...shared.progress import Progress
from ...shared.state_dir import StateHome, load_record

_OPTION: t.Final = "job.monitoring"
BOARD, DASHBOARD = "grafana", "muster-job"
STATE_FILE: t.Final = "monitoring.json"
_EVERY_S: t.Final = 15.0
# A run's end waits no longer for its last metrics.
_LIMIT_S: t.Final = 5.0
# Of a file that grew by more, the end is read.
_LARGEST: t.Final = 1 << 20


@dataclasses.dataclass(frozen=True, slots=True)
class BoundMonitoring:
    """The Prometheus of a job, with its credentials.

    ``board``: the address of a Grafana that is bound, too; ``reports``: that below which reports of runs are served.
    """

    binding: Binding
    keys: dict[str, str] = dataclasses.field(repr=False)
    board: str = ""
    reports: str = ""


def open_bound(
    home: StateHome, job: Job, open_cluster: credentials.OpenCluster | None, reports: str = ""
) -> BoundMonitoring | None:
    """Return where a job's metrics go, None for a job that names nothing. Nodes need not reach it.

    :raises InputError: when the binding does not exist, is of another kind, or its credentials are not there; for an
        address of reports that is none.
    """
    if reports:
        check_endpoint(reports, "reports_url")
    if job.monitoring is None:
        return None
    binding = bindings.load_binding(home, job.monitoring, _OPTION)
    if binding.component != "monitoring":
        raise InputError(_OPTION, f"'{binding.name}' is a binding of {binding.component}, not of monitoring")
    if binding.provider not in (None, MONITORING[0]):
        problem = f"'{binding.name}' is {binding.provider}, which takes no metrics"
        raise InputError(_OPTION, problem, "Name the binding of a Prometheus")
    boards = (item.endpoint for item in bindings.list_bindings(home) if item.provider == BOARD)
    keys = credentials.read_monitoring_keys(binding, _OPTION, open_cluster)
    return BoundMonitoring(binding, keys, next(boards, ""), reports)


def link_dashboard(board: str, record: RunRecord) -> str:
    """Return the address of a run's dashboard, from its start to its end, or to now (Grafana: Unix milliseconds)."""
    begun, ended = timestamps.read_time(record.submitted_at), timestamps.read_time(record.ended_at)
    span = f"&from={int(begun * 1000)}" if begun else ""
    to = int(ended * 1000) if ended else "now"
    return f"{board}/d/{DASHBOARD}?var-run={urllib.parse.quote(record.run_id)}{span}&to={to}"


def link_report(reports: str, record: RunRecord) -> str:
    """Return the address of a run's report, empty where reports are not served."""
    return f"{reports.rstrip('/')}/{urllib.parse.quote(record.run_id)}/report/report.html" if reports else ""


class _NewLines:
    """The lines of a file that are new since they were read last."""

    def __init__(self, place: pathlib.Path, largest: int) -> None:
        self._place, self._largest, self._read = place, largest, 0

    def take(self) -> t.Iterator[dict[str, t.Any]]:
        """Yield them; a line that is cut waits for its end."""
        with contextlib.suppress(OSError), self._place.open("rb") as handle:
            size = handle.seek(0, 2)
            is_cut = size - self._read > self._largest
            # A file that is shorter than it was begins anew.
            handle.seek(size - self._largest if is_cut else self._read if size >= self._read else 0)
            if is_cut:
                handle.readline()
            begun = handle.tell()
            data = handle.read()
            whole = data[: data.rfind(b"\n") + 1]
            self._read = begun + len(whole)
            yield from files.parse_json_lines(whole)


class RunMetrics:
    """Reads a run's files and sends what they say; ``send`` returns the problem, empty without one."""

    def __init__(self, bound: BoundMonitoring, folder: pathlib.Path) -> None:
        # Late: it needs the HTTP client, for which every other run would wait.
        from ...._services.monitoring import prometheus
        from . import run_figures

        self._bound, self._folder, self._link = bound, folder, ""
        self._prometheus, self._figures = prometheus, run_figures
        self._history, self._paces = RunHistory(), run_figures.RankPaces()
        # Which attempts there were is needed whole.
        self._events = _NewLines(folder / "events.jsonl", 1 << 40)
        self._metrics = _NewLines(folder / "metrics.jsonl", _LARGEST)

    def send(self) -> str:
        """Send what is known now. A run that was not started has nothing."""
        from .....module_utils._http.retry import Timeouts

        try:
            samples = self.read(time.time())
            if samples:
                body = self._prometheus.encode(samples, time.time())
                timeouts = Timeouts(total_s=_LIMIT_S, read_s=_LIMIT_S)
                self._prometheus.push(self._bound.binding, self._bound.keys, body, _OPTION, timeouts)
        except MusterError as error:
            return f"{error.message}. {error.fix}" if error.fix else error.message
        return ""

    def read(self, now: float) -> list[t.Any]:
        """Return the samples of the run at a time, none before it has a record."""
        for line in self._events.take():
            self._history.event(line)
        for line in self._metrics.take():
            if self._paces.take(line):
                self._history.metric(line)
        record = load_record(self._folder)
        if record is not None and self._bound.board:
            self._keep_link(link_dashboard(self._bound.board, record))
        if record is None:
            return []
        report = link_report(self._bound.reports, record)
        return self._figures.read_samples(record, self._history, self._paces, now, report)

    def _keep_link(self, link: str) -> None:
        """Keep where the run's dashboard is, for its report."""
        if link != self._link:
            self._link = link
            files.write_atomic(self._folder / STATE_FILE, json.dumps({"schema": 1, "dashboard": link}).encode())


@contextlib.contextmanager
def send_metrics(bound: BoundMonitoring | None, folder: pathlib.Path, progress: Progress) -> t.Iterator[None]:
    """Send a run's metrics while it is followed, and once more at its end."""
    if bound is None:
        yield
        return
    metrics, ended, name = RunMetrics(bound, folder), threading.Event(), bound.binding.name
    said: list[str] = []

    def send() -> None:
        problem = metrics.send()
        if problem and not said:
            said.append(problem)
            progress.say(f"warning: metrics are not sent to {name}, and are dropped meanwhile: {problem}")
        elif not problem and said:
            said.clear()
            progress.say(f"{name} takes the metrics again")

    def work() -> None:
        while not ended.wait(_EVERY_S):
            send()

    thread = threading.Thread(target=work, name="monitoring", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(_LIMIT_S)
        if not said and not thread.is_alive():
            send()
