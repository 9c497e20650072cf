# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Prometheus as a service: what a node asks it, and figures that are sent to its OTLP receiver as JSON."""

from __future__ import annotations

import json
import math
import typing as t

from ....module_utils._http.messages import HttpRequest, HttpResponse
from ....module_utils._http.retry import Timeouts
from ....module_utils._model.binding import Binding
from ....module_utils._model.errors import InputError, MusterError, RefusedError, TransportError
from ..keyed_call import TIMEOUTS, Keys, send_once

_OTLP: t.Final = "/api/v1/otlp/v1/metrics"


class MonitoringProgram(t.NamedTuple):
    """A program of monitoring. ``ready``: the path and what is in its answer once it serves; ``own``: a path for users.

    Sources: Prometheus' "Management API", Alertmanager's API v2, Grafana's "Other HTTP API" and "User HTTP API".
    """

    title: str
    ready: tuple[str, str]
    own: str


_PROGRAMS: t.Final = {
    "prometheus": MonitoringProgram("Prometheus", ("/-/ready", "Prometheus Server is Ready"), _OTLP),
    "alertmanager": MonitoringProgram("Alertmanager", ("/-/ready", "OK"), "/api/v2/status"),
    "grafana": MonitoringProgram("Grafana", ("/api/health", '"database"'), "/api/user"),
}
# Answers that say more than that it failed. A delta answers 500, and its clients would ask for ever: all are sent once.
_TOLD: t.Final = (400, 401, 403, 404, 405, 415, 500)
_SHOWN: t.Final = 120
_CLOCK_FIX: t.Final = (
    "Set the clocks (NTP), and storage.tsdb.out_of_order_time_window in the configuration of Prometheus, such as 30m"
)


class Sample(t.NamedTuple):
    """One figure with its labels."""

    name: str
    value: float
    labels: t.Mapping[str, str]


def build_request(binding: Binding) -> dict[str, t.Any]:
    """Return what a node asks, without a credential."""
    path, _text = _program(binding).ready
    return {"url": f"{binding.endpoint}{path}", "method": "GET", "body": "", "ca": binding.ca}


def _program(binding: Binding) -> MonitoringProgram:
    return _PROGRAMS[binding.provider or "prometheus"]


def judge(binding: Binding, answer: t.Mapping[str, t.Any]) -> tuple[str, str] | None:
    """Return what is wrong with an answer and how to mend it, None for that of a program that serves."""
    name, (path, ready), _own = _program(binding)
    status, text = int(answer["status"]), str(answer["text"])
    # A proxy may ask for a login before anything: the credentials are tried by themselves.
    if status == 401 or (status == 200 and ready in text):
        return None
    if status == 503:
        return "is not ready: it is still reading its data", f"Run this again when its {path} answers 200"
    if "html" in str(answer["kind"]) or text.lstrip()[:1] == "<":
        return f"answers {status} with a web page, not as {name}", "Check the endpoint: a proxy or a login is there"
    return f"answers {status}, not as {name}", f"Check the endpoint: it is the address below which {path} is"


def encode(samples: t.Iterable[Sample], at: float) -> bytes:
    """Return samples of one time (Unix seconds) as an OTLP request in JSON, all as gauges.

    Numbers of 64 bits are text there (OpenTelemetry protocol, JSON Protobuf encoding).
    """
    points: dict[str, list[dict[str, t.Any]]] = {}
    for sample in samples:
        labels = [{"key": key, "value": {"stringValue": value}} for key, value in sample.labels.items()]
        point = {"timeUnixNano": str(int(at * 1e9)), "asDouble": _plain(sample.value), "attributes": labels}
        points.setdefault(sample.name, []).append(point)
    metrics = [{"name": name, "gauge": {"dataPoints": listed}} for name, listed in points.items()]
    # Prometheus makes the label ``job`` of it.
    resource = {"attributes": [{"key": "service.name", "value": {"stringValue": "muster"}}]}
    body = {"resourceMetrics": [{"resource": resource, "scopeMetrics": [{"metrics": metrics}]}]}
    return json.dumps(body, separators=(",", ":")).encode()


def _plain(value: float) -> float | str:
    # JSON has no NaN; this encoding has its name.
    return value if math.isfinite(value) else str(value).replace("nan", "NaN").replace("inf", "Infinity")


def push(binding: Binding, keys: Keys, body: bytes, option: str, timeouts: Timeouts = TIMEOUTS) -> None:
    """Send an OTLP request once.

    :raises InputError: when the credentials are refused.
    :raises RefusedError: when Prometheus takes no figures, or not these.
    :raises TransportError: when it does not answer.
    """
    request = HttpRequest("POST", _OTLP, headers={"Content-Type": "application/json"}, body=body, idempotent=False)
    problem = _judge_push(send_once(binding, keys, request, _TOLD, timeouts), binding.endpoint, option)
    if problem is not None:
        raise problem


def _judge_push(answer: HttpResponse, where: str, option: str) -> MusterError | None:
    text = answer.body[:_SHOWN].decode(errors="replace").strip()
    if answer.status in (401, 403):
        problem = f"Prometheus at {where} refuses the credentials (HTTP {answer.status})"
        return InputError(f"{option}.secret_ref", problem, "Check them, and that they may write")
    if answer.status in (404, 405):
        problem = f"{option}: Prometheus at {where} takes no metrics of jobs (HTTP {answer.status})"
        return RefusedError(problem, "Start it with --web.enable-otlp-receiver")
    if "too old" in text or "out of bounds" in text or "out of order" in text:
        return RefusedError(f"{option}: Prometheus at {where} refuses the time of metrics: {text}", _CLOCK_FIX)
    if answer.status not in (200, 202, 204):
        return RefusedError(f"{option}: Prometheus at {where} answered {answer.status}: {text}", "Look at its log")
    return None


def check_access(binding: Binding, keys: Keys, option: str) -> str:
    """Refuse a Prometheus that takes no metrics; return why that could not be tried, empty where it was.

    A request without a metric is sent, which leaves nothing; of other programs the user is tried. Raises as push.
    """
    program = _program(binding)
    try:
        if program.own != _OTLP:
            answer = send_once(binding, keys, HttpRequest("GET", program.own), _TOLD, TIMEOUTS)
            if answer.status in (401, 403):
                problem = f"{program.title} at {binding.endpoint} refuses the credentials (HTTP {answer.status})"
                raise InputError(f"{option}.secret_ref", problem, "Check them")
            return ""
        push(binding, keys, encode((), 0.0), option)
    except TransportError as exc:
        return exc.message
    return ""


def describe_window(binding: Binding, keys: Keys) -> str:
    """Return a warning where Prometheus refuses metrics that come late, empty where it takes them, or does not say."""
    try:
        answer = send_once(binding, keys, HttpRequest("GET", "/api/v1/status/config"), (401, 403, 404), TIMEOUTS)
        told = json.loads(answer.body)["data"]["yaml"] if answer.status == 200 else "out_of_order_time_window"
    except (TransportError, ValueError, KeyError, TypeError):
        return ""
    if "out_of_order_time_window" in str(told):
        return ""
    return f"it refuses metrics that are late, as of a clock that is behind. {_CLOCK_FIX}"
