# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Prometheus as it is deployed: HTTPS, one user, the rules, and bounds for its disk and memory.

Its settings are YAML, of which JSON is a part.
"""

from __future__ import annotations

import json
import pathlib
import typing as t
import urllib.parse

from ..component import DISK_SHARE, Component, Credentials, Peer, Site, write_listen
from . import web_login

RULES: t.Final = pathlib.Path(__file__).with_name("muster.rules.yml")
# What the role monitoring_files writes, and what a user adds.
SCRAPES: t.Final = "/etc/prometheus/muster/*scrape.yml"
NODE_PORT, DCGM_PORT = 9100, 9400
_GB: t.Final = 10**9
_KEPT_GB: t.Final = 10
_MEMORY: t.Final = "450MiB"


def write_files(site: Site, credentials: Credentials) -> dict[str, str]:
    """Return the settings, the user, the rules, and key and certificate."""
    config: dict[str, t.Any] = {
        # A rented node may be behind a relay, and answers late.
        "global": {"scrape_interval": "15s", "scrape_timeout": "14s", "evaluation_interval": "15s"},
        # Metrics of jobs come late where a connection was cut.
        "storage": {"tsdb": {"out_of_order_time_window": "30m"}},
        "rule_files": [f"{site.files}/{RULES.name}"],
    }
    if site.in_cluster:
        config["scrape_configs"] = _find_exporters()
    else:
        config["scrape_config_files"] = [SCRAPES]
    if site.peer:
        config["alerting"] = {"alertmanagers": [_find_alertmanager(site.peer)]}
    files = {"prometheus.yml": json.dumps(config, indent=1), RULES.name: RULES.read_text()}
    return {**files, **web_login.write_files(site, credentials)}


def _find_alertmanager(peer: Peer) -> dict[str, t.Any]:
    place = urllib.parse.urlsplit(peer.endpoint)
    path = {"path_prefix": place.path} if place.path.strip("/") else {}
    targets = {"scheme": place.scheme, "static_configs": [{"targets": [place.netloc]}]}
    return {**targets, **path, **web_login.describe_client(peer)}


def _find_exporters() -> list[dict[str, t.Any]]:
    """Return what is scraped in a cluster: node_exporter of each Node, and every dcgm-exporter's pod.

    Both are named by the Node. A GPU's own labels (pod, namespace) are those of who uses it, not of the exporter.
    """
    nodes = [
        {"source_labels": ["__meta_kubernetes_node_address_InternalIP"], "regex": "([^:]+)",
         "target_label": "__address__", "replacement": f"${{1}}:{NODE_PORT}"},
        {"source_labels": ["__meta_kubernetes_node_address_InternalIP"], "regex": "(.+:.+)",
         "target_label": "__address__", "replacement": f"[${{1}}]:{NODE_PORT}"},
        {"source_labels": ["__meta_kubernetes_node_name"], "target_label": "node"},
    ]  # fmt: skip
    name = "__meta_kubernetes_pod_label_app_kubernetes_io_name"
    dcgm = [
        {"source_labels": ["__meta_kubernetes_pod_label_app", name], "regex": "(.*;)?(nvidia-)?dcgm-exporter(;.*)?",
         "action": "keep"},
        {"source_labels": ["__meta_kubernetes_pod_container_port_number"], "regex": str(DCGM_PORT), "action": "keep"},
        {"source_labels": ["__meta_kubernetes_pod_phase"], "regex": "Running", "action": "keep"},
        {"source_labels": ["__meta_kubernetes_pod_node_name"], "target_label": "node"},
    ]  # fmt: skip
    return [
        {"job_name": "muster-nodes", "honor_labels": True, "kubernetes_sd_configs": [{"role": "node"}],
         "relabel_configs": nodes},
        {"job_name": "muster-dcgm", "honor_labels": True, "kubernetes_sd_configs": [{"role": "pod"}],
         "relabel_configs": dcgm},
    ]  # fmt: skip


def find_size_limit(site: Site) -> int:
    """Return the bytes that its data may take: what is asked for, else 10 GB, or less where its claim is small."""
    if site.retention.gb is not None:
        return site.retention.gb * _GB
    room = _KEPT_GB * _GB if site.volume_bytes is None else int(site.volume_bytes * DISK_SHARE)
    return min(_KEPT_GB * _GB, room)


def _write_size(count: int) -> str:
    return f"{count // _GB}GB" if count % _GB == 0 else f"{count // 10**6}MB"


def command(site: Site) -> list[str]:
    """Return the words behind ``prometheus``."""
    return [
        f"--config.file={site.files}/prometheus.yml",
        f"--web.config.file={site.files}/{web_login.FILE}",
        f"--storage.tsdb.path={site.data}",
        f"--storage.tsdb.retention.time={site.retention.days}d",
        f"--storage.tsdb.retention.size={_write_size(find_size_limit(site))}",
        f"--web.listen-address={write_listen(site)}",
        "--web.enable-otlp-receiver",
    ]


COMPONENT: t.Final = Component(
    kind="monitoring",
    provider="prometheus",
    member="prometheus",
    image="docker.io/prom/prometheus",
    port=9090,
    ready="/-/ready",
    # It asks for the user before anything.
    statuses=(200, 401),
    make_credentials=web_login.make_credentials,
    write_files=write_files,
    command=command,
    secret_keys=web_login.KEYS,
    memory="512Mi",
    size="20Gi",
    secure=True,
    # The controller sends it the metrics of jobs.
    on_node=True,
    tag="v{version}",
    watches=("nodes", "pods"),
    environment=lambda _site: {"GOMEMLIMIT": _MEMORY},
    size_limit=find_size_limit,
)
