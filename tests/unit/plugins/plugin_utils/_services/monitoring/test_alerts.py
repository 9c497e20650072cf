# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Faults that real programs tell: series in Prometheus, its rules, Alertmanager, and a webhook that gets the alerts."""

from __future__ import annotations

import http.server
import json
import pathlib
import re
import threading
import time

from ansible_collections.muster.training.plugins.module_utils._model.binding import Binding
from ansible_collections.muster.training.plugins.plugin_utils._services.monitoring import prometheus
from ansible_collections.muster.training.plugins.plugin_utils._services.monitoring.component import RULES
from ansible_collections.muster.training.plugins.plugin_utils._services.monitoring.prometheus import Sample
from ansible_collections.muster.training.tests.support import prometheus_program
from ansible_collections.muster.training.tests.support.kube_api import free_port

RUN = {"run": "r", "name": "llm"}
HEALTHY = [
    Sample("muster_run_active", 1, RUN),
    Sample("muster_run_stalled", 0, RUN),
    Sample("muster_run_loss_is_nan", 0, RUN),
    Sample("muster_run_step_seconds_median", 1, RUN),
    Sample("muster_run_step_seconds_slowest", 1.1, RUN),
    Sample("muster_run_checkpoint_age_seconds", 60, RUN),
    Sample("muster_run_node", 1, {**RUN, "node": "a"}),
    Sample("muster_lease_usd_per_hour", 2.5, {"node": "a"}),
    Sample("muster_gpu_ecc_uncorrected_errors", 0, {"node": "a", "uuid": "G"}),
    Sample("up", 1, {"job": "muster-nodes", "node": "a"}),
]
FAULTS = {
    "RunStalled": Sample("muster_run_stalled", 1, RUN),
    "LossIsNan": Sample("muster_run_loss_is_nan", 1, RUN),
    "RunStraggler": Sample("muster_run_step_seconds_slowest", 2, RUN),
    "CheckpointOld": Sample("muster_run_checkpoint_age_seconds", 20000, RUN),
    "RunOnTcp": Sample("muster_run_info", 1, {**RUN, "lane": "A", "transport": "tcp"}),
    "RentedNodeIdle": Sample("muster_lease_usd_per_hour", 2.5, {"node": "b"}),
    "GpuEccUncorrected": Sample("muster_gpu_ecc_uncorrected_errors", 1, {"node": "a", "uuid": "G"}),
    "GpuXidHardware": Sample("muster_gpu_xid_time_seconds", time.time(), {"node": "a", "pci": "0", "xid": "79"}),
}


def test_eight_faults_arrive_at_a_webhook_and_a_healthy_time_brings_none(tmp_path: pathlib.Path) -> None:
    """The rules' own times are a second here; the first answer of the webhook is an error, after which it is asked again."""
    got: list[dict[str, str]] = []
    refused: list[int] = []

    class Webhook(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            status = 200 if refused else 500
            if status == 200:
                got.extend(
                    {**item["labels"], **item["annotations"]} for item in body["alerts"] if item["status"] == "firing"
                )
            refused.append(status)
            self.send_response(status)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    hook = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Webhook)
    threading.Thread(target=hook.serve_forever, daemon=True).start()
    alerts, folder = free_port(), tmp_path
    (folder / "rules.yml").write_text(re.sub(r"for: \w+", "for: 1s", RULES.read_text()))
    receiver = {"name": "hook", "webhook_configs": [{"url": f"http://127.0.0.1:{hook.server_port}/"}]}
    route = {"receiver": "hook", "group_by": ["alertname"], "group_wait": "1s", "group_interval": "1s"}
    (folder / "alertmanager.yml").write_text(json.dumps({"route": route, "receivers": [receiver]}))
    words = [prometheus_program.find("alertmanager"), f"--config.file={folder / 'alertmanager.yml'}",
             f"--storage.path={folder / 'am'}", f"--web.listen-address=127.0.0.1:{alerts}", "--cluster.listen-address="]  # fmt: skip
    config = {
        "global": {"evaluation_interval": "1s"},
        "rule_files": [str(folder / "rules.yml")],
        "alerting": {"alertmanagers": [{"static_configs": [{"targets": [f"127.0.0.1:{alerts}"]}]}]},
    }
    about = {"name": "m", "component": "monitoring", "mode": "bind"}
    with (
        prometheus_program.serving(words, folder, f"http://127.0.0.1:{alerts}"),
        prometheus_program.running(folder / "p", prometheus_program.OTLP, config=json.dumps(config)) as server,
    ):
        binding = Binding.from_dict({**about, "endpoint": server.url})

        def tell(samples: list[Sample]) -> None:
            # "job" is what OTLP's service.name becomes; "up" is otherwise made by a scrape.
            prometheus.push(binding, {}, prometheus.encode(samples, time.time()), "o")

        tell(HEALTHY)
        time.sleep(5)
        # Of what a scrape would give, nothing is here.
        silent = {"NoNodeMetrics", "NodeWithoutMetrics"}
        assert {item["alertname"] for item in got} <= silent
        began = time.monotonic()
        while not {*FAULTS} <= {item["alertname"] for item in got} and time.monotonic() - began < 30:
            tell([*HEALTHY[:1], *HEALTHY[3:4], *FAULTS.values()])
            time.sleep(0.5)
    hook.shutdown()
    hook.server_close()
    assert {item["alertname"] for item in got} - silent == {*FAULTS} and refused[0] == 500
    assert all(item["fix"] and item["summary"] and item["severity"] for item in got)
    idle = next(item for item in got if item["alertname"] == "RentedNodeIdle")
    assert idle["summary"] == "b is rented for 2.5 USD an hour, and no run is on it"
