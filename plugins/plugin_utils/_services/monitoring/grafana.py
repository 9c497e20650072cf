# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Grafana as it is deployed, in clusters: HTTPS, one administrator, no access without a login, our dashboards.

Its settings are variables, ``GF_SECTION_KEY`` (Grafana's documentation, "Override configuration with environment
variables").
"""

from __future__ import annotations

import json
import pathlib
import typing as t

from ..component import Component, Credentials, Peer, Site, make_token, tls_files

USER: t.Final = "GRAFANA_USERNAME"
PASSWORD: t.Final = "GRAFANA_PASSWORD"
_NAME: t.Final = "admin"
_PASSWORD_FILE: t.Final = "admin-password"
_PROVISIONING: t.Final = "provisioning"
_DASHBOARDS: t.Final = "dashboards"
DASHBOARDS: t.Final = pathlib.Path(__file__).with_name(_DASHBOARDS)


def make_credentials() -> dict[str, str]:
    """Return the administrator with a new password."""
    return {USER: _NAME, PASSWORD: make_token()}


def describe_source(peer: Peer) -> dict[str, t.Any]:
    """Return the Prometheus that the dashboards read, as Grafana's provisioning has it."""
    source: dict[str, t.Any] = {
        "name": "Prometheus", "uid": "muster", "type": "prometheus", "access": "proxy", "isDefault": True,
        "url": peer.endpoint, "editable": False, "jsonData": {"httpMethod": "POST", "timeInterval": "15s"},
        "secureJsonData": {},
    }  # fmt: skip
    if peer.ca:
        source["jsonData"]["tlsAuthWithCACert"] = True
        source["secureJsonData"]["tlsCACert"] = peer.ca
    if peer.user:
        source.update(basicAuth=True, basicAuthUser=peer.user)
        source["secureJsonData"]["basicAuthPassword"] = peer.password
    if peer.token:
        source["jsonData"]["httpHeaderName1"] = "Authorization"
        source["secureJsonData"]["httpHeaderValue1"] = f"Bearer {peer.token}"
    return source


def write_files(site: Site, credentials: Credentials) -> dict[str, str]:
    """Return the password, the source of data, the dashboards with who reads them, and key and certificate.

    Names have folders, which a pod has them in.
    """
    folder = {"path": f"{site.files}/{_DASHBOARDS}"}
    provider = {"name": "muster", "folder": "muster", "type": "file", "allowUiUpdates": False, "options": folder}
    sources = [describe_source(site.peer)] if site.peer else []
    return {
        _PASSWORD_FILE: credentials[PASSWORD],
        f"{_PROVISIONING}/datasources/muster.yaml": json.dumps({"apiVersion": 1, "datasources": sources}),
        f"{_PROVISIONING}/dashboards/muster.yaml": json.dumps({"apiVersion": 1, "providers": [provider]}),
        **{f"{_DASHBOARDS}/{place.name}": place.read_text() for place in sorted(DASHBOARDS.glob("*.json"))},
        **tls_files(site, credentials, "tls.key", "tls.crt"),
    }


def write_environment(site: Site) -> dict[str, str]:
    """Return its settings. It sends nothing about itself, and looks for no updates."""
    data, files = site.data, site.files
    return {
        "GF_SERVER_PROTOCOL": "https" if site.is_secure else "http",
        "GF_SERVER_HTTP_ADDR": site.listen,
        "GF_SERVER_HTTP_PORT": str(site.port),
        "GF_SERVER_CERT_FILE": f"{files}/tls.crt",
        "GF_SERVER_CERT_KEY": f"{files}/tls.key",
        "GF_SERVER_ROOT_URL": site.endpoint,
        "GF_PATHS_DATA": data,
        "GF_PATHS_LOGS": f"{data}/log",
        "GF_PATHS_PLUGINS": f"{data}/plugins",
        "GF_PATHS_PROVISIONING": f"{files}/{_PROVISIONING}",
        "GF_SECURITY_ADMIN_USER": _NAME,
        "GF_SECURITY_ADMIN_PASSWORD__FILE": f"{files}/{_PASSWORD_FILE}",
        "GF_AUTH_ANONYMOUS_ENABLED": "false",
        "GF_USERS_ALLOW_SIGN_UP": "false",
        "GF_ANALYTICS_REPORTING_ENABLED": "false",
        "GF_ANALYTICS_CHECK_FOR_UPDATES": "false",
        "GF_ANALYTICS_CHECK_FOR_PLUGIN_UPDATES": "false",
        "GF_LOG_MODE": "console",
    }


COMPONENT: t.Final = Component(
    kind="monitoring",
    provider="grafana",
    member="grafana",
    image="docker.io/grafana/grafana",
    port=3000,
    ready="/api/health",
    statuses=(200,),
    make_credentials=make_credentials,
    write_files=write_files,
    command=lambda _site: ["server", "--homepath=/usr/share/grafana"],
    secret_keys={"username": USER, "password": PASSWORD},
    memory="256Mi",
    size="1Gi",
    secure=True,
    on_node=True,
    environment=write_environment,
    warning="Grafana is of the licence AGPL-3.0; it is deployed as its project publishes it",
    host_fix=(
        "Install Grafana's package on the host, and provision what the role monitoring_files writes; or deploy it in a "
        "cluster: deploy: {namespace: NAME}"
    ),
)
