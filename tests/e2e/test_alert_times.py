# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From a fault to the webhook with the rules' own times: eight kinds, five each, after a time in which nothing is wrong.

Real: Prometheus, Alertmanager, the rules and the routing as they are deployed. Exporters are one synthetic target with the
fields of ``alert_cases``: forty runs, each on two nodes, of which each has one fault, at moments of its own.
"""

from __future__ import annotations

import http.server
import json
import pathlib
import random
import re
import threading
import time
import typing as t

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._services.monitoring import alertmanager
from ansible_collections.muster.training.plugins.plugin_utils._services.monitoring.component import RULES
from ansible_collections.muster.training.tests.support import prometheus_program
from ansible_collections.muster.training.tests.support.alert_cases import FAULTS, HEALTHY
from ansible_collections.muster.training.tests.support.kube_api import free_port
from ansible_collections.muster.training.tests.support.monitoring_services import make, site

KINDS: t.Final = (
    "RunStalled",
    "RunHangs",
    "RunStraggler",
    "SilentTcp",
    "GpuXidHardware",
    "GpuFellOffTheBus",
    "GpuThrottled",
    "RdmaLinkDown",
)
TIMES = 5
# Rates over five minutes have to be known before a fault, and a time without one is judged.
CLEAN_S = 420.0
SPREAD_S = 60.0
# Scrape, evaluation and Alertmanager's wait for others of a group.
LATE_S = 60.0
NAMES = ("run", "node", "Hostname", "hostname", "UUID", "uuid", "instance")
# What a rule's condition itself takes beyond its ``for``: an age of a step, the window of a rate that has to become small.
CONDITION_S: t.Final = {"RunHangs": 300.0, "SilentTcp": 120.0}
# What a target is by being scraped.
SCRAPED = "up{"
LATEST_S = 1080.0


def value_at(text: str, minutes: float) -> float:
    """Return a series' value some minutes after its begin, of promtool's notation: ``0x9 0+60x200``."""
    left = minutes
    for part in text.format(m=100_000).split():
        found = re.fullmatch(r"(?P<first>[0-9.e]+)(?:\+(?P<more>[0-9.e]+))?x(?P<times>[0-9]+)", part)
        assert found, part
        if left < float(found["times"]) + 1:
            return float(found["first"]) + float(found["more"] or 0.0) * left
        left -= float(found["times"]) + 1
    raise AssertionError(text)


class Fleet:
    """Forty runs; ``faulty``: when each has its fault, in seconds after the start."""

    def __init__(self, seed: int) -> None:
        draw = random.Random(seed)
        self.began = time.time()
        self.kinds = [kind for kind in KINDS for _time in range(TIMES)]
        self.faulty = [CLEAN_S + draw.uniform(0.0, SPREAD_S) for _kind in self.kinds]

    def write(self) -> str:
        """Return what the exporters say now."""
        after = time.time() - self.began
        return "\n".join(line for number in range(len(self.kinds)) for line in self._lines(number, after)) + "\n"

    def _lines(self, number: int, after: float) -> t.Iterator[str]:
        faults = FAULTS[self.kinds[number]][0]
        since = after - self.faulty[number]
        shown = {**HEALTHY, **faults} if since >= 0 else HEALTHY
        for name, text in shown.items():
            if text is None or name.startswith(SCRAPED):
                continue
            if name in faults and since >= 0:
                # A counter continues from where it was; of two phases the second one is the fault.
                before = value_at(HEALTHY[name], self.faulty[number] / 60.0) if name in HEALTHY and "+" in text else 0.0
                value = before + value_at(text.split()[-1], since / 60.0)
            else:
                value = value_at(text, after / 60.0)
            value += self.began if name.startswith("muster_lease_deadline") else 0.0
            yield f"{self.rename(name, number)} {value}"

    @staticmethod
    def rename(series: str, number: int) -> str:
        """Return a series of a run and its nodes with names of their own."""
        return re.sub(rf'\b({"|".join(NAMES)})="([^"]*)"', rf'\1="\2-{number}"', series)


def serve(handler: type[http.server.BaseHTTPRequestHandler]) -> http.server.ThreadingHTTPServer:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def rule_seconds() -> dict[str, float]:
    """Return how long each alert's condition takes and has to hold."""
    found = re.findall(r"alert: (\w+)\n(.*?)(?=- alert:|\Z)", RULES.read_text(), re.DOTALL)
    waits = {name: re.search(r"for: (\d+)m", text) for name, text in found}
    return {name: CONDITION_S.get(name, 0.0) + (60.0 * int(wait[1]) if wait else 0.0) for name, wait in waits.items()}


def configure(folder: pathlib.Path, fleet_port: int, hook_port: int, alerts: int) -> tuple[str, list[str]]:
    """Return Prometheus' configuration and the words that start Alertmanager, with the routing that is deployed."""
    place = site(folder, webhook=f"http://127.0.0.1:{hook_port}/")
    routed = json.loads(alertmanager.write_files(place, make(place, alertmanager.COMPONENT))["alertmanager.yml"])
    routed["receivers"][0]["webhook_configs"] = [{"url": place.webhook}]
    (folder / "alertmanager.yml").write_text(json.dumps(routed))
    nodes = [f"{side}-{number}" for number in range(len(KINDS) * TIMES) for side in ("a", "b")]
    targets = [f"127.0.0.1:{fleet_port}"]
    up = [{"targets": targets, "labels": {"node": node, "__metrics_path__": f"/up/{node}"}} for node in nodes]
    config = {
        "global": {"scrape_interval": "15s", "evaluation_interval": "15s"},
        "rule_files": [str(RULES)],
        "alerting": {"alertmanagers": [{"static_configs": [{"targets": [f"127.0.0.1:{alerts}"]}]}]},
        "scrape_configs": [
            {"job_name": "muster-nodes", "static_configs": up},
            {"job_name": "fleet", "honor_labels": True, "static_configs": [{"targets": targets}]},
        ],
    }
    words = [prometheus_program.find("alertmanager"), f"--config.file={folder / 'alertmanager.yml'}"]
    words += [
        f"--storage.path={folder / 'am'}",
        f"--web.listen-address=127.0.0.1:{alerts}",
        "--cluster.listen-address=",
    ]
    return json.dumps(config), words


@pytest.mark.long
def test_forty_faults_arrive_in_time_and_a_clean_time_brings_none(tmp_path: pathlib.Path) -> None:
    fleet, got = Fleet(seed=36), []

    class Exporter(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = b"" if self.path.startswith("/up/") else fleet.write().encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    class Webhook(Exporter):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            got.extend((time.time(), item) for item in body["alerts"] if item["status"] == "firing")
            self.send_response(200)
            self.end_headers()

    exporter, hook, alerts = serve(Exporter), serve(Webhook), free_port()
    config, words = configure(tmp_path, exporter.server_port, hook.server_port, alerts)
    with (
        prometheus_program.serving(words, tmp_path, f"http://127.0.0.1:{alerts}"),
        prometheus_program.running(tmp_path / "p", config=config),
    ):
        time.sleep(max(0.0, fleet.began + CLEAN_S - time.time()))
        assert [item["labels"] for _at, item in got] == [], "nothing is wrong"
        end = time.time() + LATEST_S
        while len(arrived := find_arrived(fleet, got)) < len(fleet.kinds) and time.time() < end:
            time.sleep(1.0)
    for server in (exporter, hook):
        server.shutdown()
        server.server_close()
    waits = rule_seconds()
    late = {
        number: at - fleet.began - fleet.faulty[number] - waits[fleet.kinds[number]] for number, at in arrived.items()
    }
    said = {f"{fleet.kinds[number]} {number}": round(seconds) for number, seconds in sorted(late.items())}
    print(json.dumps(said))
    assert len(late) == len(fleet.kinds) and max(late.values()) <= LATE_S, said
    # Each fault raises its own alert, and no other run's.
    named = {(item["labels"]["alertname"], number_of(item)) for _at, item in got}
    assert {number for _name, number in named} == {*range(len(fleet.kinds))}
    print(sorted({(name, fleet.kinds[number]) for name, number in named if name != fleet.kinds[number]}))


def number_of(item: dict[str, t.Any]) -> int:
    """Return which run or pair of nodes an alert is of."""
    labels = item["labels"]
    return int((labels.get("run") or labels["node"]).rpartition("-")[2])


def find_arrived(fleet: Fleet, got: list[tuple[float, dict[str, t.Any]]]) -> dict[int, float]:
    """Return when each fault's own alert came first."""
    found: dict[int, float] = {}
    for at, item in list(got):
        number = number_of(item)
        if item["labels"]["alertname"] == fleet.kinds[number]:
            found.setdefault(number, at)
    return found
