# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What Prometheus answers: judged by a table, and asked of the real program on loopback."""

from __future__ import annotations

import json
import math
import pathlib
import time

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.binding import Binding
from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError, MusterError, RefusedError
from ansible_collections.muster.training.plugins.plugin_utils._services.monitoring import prometheus
from ansible_collections.muster.training.plugins.plugin_utils._services.monitoring.prometheus import Sample
from ansible_collections.muster.training.tests.support import prometheus_program
from ansible_collections.muster.training.tests.support.loopback import http_answer, raw_server, reply


def binding(endpoint: str) -> Binding:
    return Binding.from_dict({"name": "m", "component": "monitoring", "mode": "bind", "endpoint": endpoint})


@pytest.mark.parametrize(
    ("status", "kind", "text", "wrong"),
    [
        (200, "text/plain", "Prometheus Server is Ready.\n", ""),
        (401, "text/html", "<html>", ""),
        (503, "text/plain", "Service Unavailable", "is still reading its data"),
        (200, "text/html", "<!doctype html>", "with a web page"),
        (404, "text/plain", "404 page not found", "answers 404, not as Prometheus"),
        (200, "text/plain", "OK", "answers 200, not as Prometheus"),
    ],
)
def test_an_answer_is_judged(status: int, kind: str, text: str, wrong: str) -> None:
    seen = prometheus.judge(binding("http://127.0.0.1:9090"), {"status": status, "kind": kind, "text": text})
    assert (seen is None and not wrong) or (seen is not None and wrong in seen[0] and seen[1])


def test_what_nodes_ask_has_no_credential() -> None:
    asked = prometheus.build_request(binding("https://mon.example.com/prometheus"))
    assert asked["url"] == "https://mon.example.com/prometheus/-/ready" and asked["method"] == "GET"


def test_samples_are_gauges_in_the_encoding_of_otlp() -> None:
    samples = [Sample("a", 1.5, {"run": "r"}), Sample("b", math.nan, {}), Sample("a", -math.inf, {"run": "s"})]
    body = json.loads(prometheus.encode(samples, 1000.25))
    (metrics,) = [item["metrics"] for item in body["resourceMetrics"][0]["scopeMetrics"]]
    assert [item["name"] for item in metrics] == ["a", "b"]
    points = metrics[0]["gauge"]["dataPoints"]
    assert points[0]["timeUnixNano"] == "1000250000000" and points[0]["asDouble"] == 1.5
    assert points[1]["asDouble"] == "-Infinity" and metrics[1]["gauge"]["dataPoints"][0]["asDouble"] == "NaN"


@pytest.mark.parametrize(
    ("status", "text", "kind", "words"),
    [
        (404, "404 page not found", RefusedError, "takes no metrics of jobs .HTTP 404"),
        (405, "", RefusedError, "takes no metrics of jobs"),
        (401, "", InputError, "refuses the credentials"),
        (403, "", InputError, "refuses the credentials"),
        (400, "too old sample", RefusedError, "refuses the time of metrics: too old sample"),
        (400, "out of bounds: timestamp is too far in the future", RefusedError, "too far in the future"),
        (415, "", RefusedError, "answered 415"),
        (500, "invalid temporality", RefusedError, "answered 500: invalid temporality"),
    ],
)
def test_what_refuses_figures_is_asked_once(status: int, text: str, kind: type[MusterError], words: str) -> None:
    asked: list[bytes] = []
    answer = reply(http_answer(text.encode(), f"{status} X", {"Content-Type": "text/plain"}), seen=asked)
    with raw_server(answer, answer) as port, pytest.raises(kind, match=words) as caught:
        prometheus.push(binding(f"http://127.0.0.1:{port}"), {}, b"{}", "o")
    assert len(asked) == 1 and caught.value.fix


def test_a_real_one_takes_figures_once_its_receiver_is_on(tmp_path: pathlib.Path) -> None:
    with prometheus_program.running(tmp_path / "on", prometheus_program.OTLP) as server:
        found = binding(server.url)
        assert prometheus.check_access(found, {}, "o") == "" and prometheus.describe_window(found, {}) == ""
        now = time.time()
        prometheus.push(found, {}, prometheus.encode([Sample("muster_run_loss", 1.25, {"run": "r"})], now), "o")
        prometheus.push(found, {}, prometheus.encode([Sample("muster_run_step", 3, {"run": "r"})], now - 600), "o")
        ((labels, value),) = server.query("muster_run_loss")
        assert value == 1.25 and labels == {"__name__": "muster_run_loss", "job": "muster", "run": "r"}
        with pytest.raises(RefusedError, match="too far in the future") as caught:
            prometheus.push(found, {}, prometheus.encode([Sample("x", 1, {})], now + 7200), "o")
        assert "NTP" in caught.value.fix
        with pytest.raises(RefusedError, match="too old"):
            prometheus.push(found, {}, prometheus.encode([Sample("muster_run_loss", 1, {"run": "r"})], now - 7200), "o")
    with prometheus_program.running(tmp_path / "off", config="global: {scrape_interval: 15s}\n") as server:
        assert "out_of_order_time_window" in prometheus.describe_window(binding(server.url), {})
        with pytest.raises(RefusedError, match="HTTP 404") as caught:
            prometheus.check_access(binding(server.url), {}, "o")
        assert caught.value.fix == "Start it with --web.enable-otlp-receiver"
    assert prometheus.check_access(binding(server.url), {}, "o"), "it is away, which is not refused"
