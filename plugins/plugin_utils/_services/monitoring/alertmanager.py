# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Alertmanager as it is deployed: HTTPS, one user, one webhook that gets the alerts, or a configuration of its user."""

from __future__ import annotations

import json
import typing as t

from ..component import Component, Credentials, Site, write_listen
from . import web_login

_WEBHOOK, _TOKEN = "webhook.url", "webhook.token"
# What belongs together comes as one message: the alerts of one run, or of one node.
_ROUTE: t.Final = {
    "receiver": "muster",
    "group_by": ["alertname", "run", "node"],
    "group_wait": "10s",
    "group_interval": "1m",
    "repeat_interval": "4h",
}
# A critical alert of a node stands for what it causes there.
_INHIBIT: t.Final = [
    {"source_matchers": ['severity="critical"'], "target_matchers": ['severity="warning"'], "equal": ["node", "run"]}
]


def write_files(site: Site, credentials: Credentials) -> dict[str, str]:
    """Return the configuration, the address of the webhook, the user, and key and certificate."""
    kept = {name: text for name, text in ((_WEBHOOK, site.webhook), (_TOKEN, site.webhook_token)) if text}
    told: dict[str, t.Any] = {"url_file": f"{site.files}/{_WEBHOOK}"}
    if site.webhook_token:
        told["http_config"] = {"authorization": {"credentials_file": f"{site.files}/{_TOKEN}"}}
    receiver = {"name": "muster", **({"webhook_configs": [told]} if site.webhook else {})}
    made = json.dumps({"route": _ROUTE, "receivers": [receiver], "inhibit_rules": _INHIBIT}, indent=1)
    return {"alertmanager.yml": site.config or made, **kept, **web_login.write_files(site, credentials)}


def command(site: Site) -> list[str]:
    """Return the words behind ``alertmanager``. It is one, not one of several that talk to each other."""
    return [
        f"--config.file={site.files}/alertmanager.yml",
        f"--web.config.file={site.files}/{web_login.FILE}",
        f"--storage.path={site.data}",
        f"--web.listen-address={write_listen(site)}",
        "--cluster.listen-address=",
    ]


COMPONENT: t.Final = Component(
    kind="monitoring",
    provider="alertmanager",
    member="alertmanager",
    image="docker.io/prom/alertmanager",
    port=9093,
    ready="/-/ready",
    # It asks for the user before anything.
    statuses=(200, 401),
    make_credentials=web_login.make_credentials,
    write_files=write_files,
    command=command,
    secret_keys=web_login.KEYS,
    memory="128Mi",
    size="1Gi",
    secure=True,
    on_node=True,
    tag="v{version}",
)
