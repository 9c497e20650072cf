# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Prometheus as it is deployed: HTTPS, one user, the rules, and bounds for its disk and memory.

Its settings are YAML, of which JSON is a part.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import json
import pathlib
import typing as t
import urllib.parse

from ..component import Component, Credentials, Site, make_token, tls_files, write_listen
from ..registry.distribution import hash_password

USER: t.Final = "PROMETHEUS_USERNAME"
PASSWORD: t.Final = "PROMETHEUS_PASSWORD"
_HASH: t.Final = "PROMETHEUS_HASH"
_NAME: t.Final = "metrics-user"
RULES: t.Final = pathlib.Path(__file__).with_name("muster.rules.yml")
# What the role monitoring_files writes, and what a user adds.
SCRAPES: t.Final = "/etc/prometheus/muster/*scrape.yml"
_RETENTION: t.Final = ("30d", "10GB")
_MEMORY: t.Final = "450MiB"


def make_credentials() -> dict[str, str]:
    """Return a new user, and the hash of its password."""
    password = make_token()
    return {USER: _NAME, PASSWORD: password, _HASH: hash_password(password)}


def write_files(site: Site, credentials: Credentials) -> dict[str, str]:
    """Return the settings, the user, the rules, and key and certificate."""
    config: dict[str, t.Any] = {
        "global": {"scrape_interval": "15s", "evaluation_interval": "15s"},
        # Metrics of jobs come late where a connection was cut.
        "storage": {"tsdb": {"out_of_order_time_window": "30m"}},
        "rule_files": [f"{site.files}/{RULES.name}"],
        "scrape_config_files": [SCRAPES],
    }
    if site.alertmanager:
        place = urllib.parse.urlsplit(site.alertmanager)
        targets = {"scheme": place.scheme, "static_configs": [{"targets": [place.netloc]}]}
        path = {"path_prefix": place.path} if place.path.strip("/") else {}
        config["alerting"] = {"alertmanagers": [{**targets, **path}]}
    web: dict[str, t.Any] = {"basic_auth_users": {credentials[USER]: credentials[_HASH]}}
    if site.is_secure:
        web["tls_server_config"] = {"cert_file": "tls.crt", "key_file": "tls.key"}
    files = {"prometheus.yml": json.dumps(config, indent=1), "web.yml": json.dumps(web, indent=1)}
    return {**files, RULES.name: RULES.read_text(), **tls_files(site, credentials, "tls.key", "tls.crt")}


def command(site: Site) -> list[str]:
    """Return the words behind ``prometheus``."""
    time, size = _RETENTION
    return [
        f"--config.file={site.files}/prometheus.yml",
        f"--web.config.file={site.files}/web.yml",
        f"--storage.tsdb.path={site.data}",
        f"--storage.tsdb.retention.time={time}",
        f"--storage.tsdb.retention.size={size}",
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
    make_credentials=make_credentials,
    write_files=write_files,
    command=command,
    secret_keys={"username": USER, "password": PASSWORD},
    memory="512Mi",
    secure=True,
    environment=lambda _site: {"GOMEMLIMIT": _MEMORY},
)
