# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the roles leave: exporters that answer, and a Prometheus that scrapes them and knows its Alertmanager."""

from __future__ import annotations

import json
import time
import typing as t

testinfra_hosts = ["ansible://muster_nodes"]
ASK = """
import json, sys, urllib.request
with urllib.request.urlopen(sys.argv[1], timeout=10) as answer:
    print(answer.read().decode())
"""


def read(host: t.Any, url: str) -> str:
    return str(host.check_output("python3 -c %s %s", ASK, url))


def test_the_exporters_answer(host: t.Any) -> None:
    address = host.ansible.get_variables().get("muster_address") or "127.0.0.1"
    text = read(host, f"http://{address}:9100/metrics")
    assert "node_exporter_build_info" in text and "node_memory_MemTotal_bytes" in text
    for name in ("muster-node-exporter", "muster-gpu-textfile"):
        with host.sudo():
            assert host.service(name).is_running and host.service(name).is_enabled
    # It writes every 15 seconds, at once when it starts.
    end = time.monotonic() + 30
    while "muster_gpu_pci_devices" not in text and time.monotonic() < end:
        time.sleep(1)
        text = read(host, f"http://{address}:9100/metrics")
    assert "muster_gpu_pci_devices 0" in text


def test_prometheus_and_alertmanager_run_where_they_were_deployed(host: t.Any) -> None:
    values = host.ansible.get_variables()
    is_there = values["inventory_hostname"] == values["monitor_host"]
    for name in ("muster-metrics", "muster-alerts"):
        with host.sudo():
            assert host.service(name).is_running is is_there
    if is_there:
        with host.sudo():
            files = host.file("/etc/muster/services/metrics/prometheus.yml")
            assert files.mode == 0o600 and json.loads(files.content_string)["alerting"]
            # The program that runs has read the files.
            shown = host.check_output("journalctl -u muster-metrics --no-pager")
        assert "Server is ready to receive web requests" in shown
