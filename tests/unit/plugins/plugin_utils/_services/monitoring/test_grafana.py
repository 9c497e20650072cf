# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Grafana as it is deployed: what it is given. The program itself is not run here."""

from __future__ import annotations

import base64
import json

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError
from ansible_collections.muster.training.plugins.plugin_utils._services import own_certificate
from ansible_collections.muster.training.plugins.plugin_utils._services.component import (
    TLS_CERTIFICATE,
    TLS_KEY,
    Peer,
    Site,
)
from ansible_collections.muster.training.plugins.plugin_utils._services.monitoring import grafana as subject
from ansible_collections.muster.training.plugins.plugin_utils._workflows.services import deploy
from ansible_collections.muster.training.tests.support.run_world import RunWorld

PEER = Peer("https://metrics:9090", "PEM", "metrics-user", "hidden-password")


def place(peer: Peer | None = PEER) -> Site:
    return Site("board", "https://10.0.0.1:3000", "0.0.0.0", 3000, "/data", "/files", peer=peer, in_cluster=True)


def credentials() -> dict[str, str]:
    pair = own_certificate.make("board", ["10.0.0.1"], [])
    names = zip((TLS_KEY, TLS_CERTIFICATE), pair, strict=True)
    return {**subject.make_credentials(), **{name: base64.b64encode(text.encode()).decode() for name, text in names}}


def test_it_reads_the_prometheus_with_its_user_and_has_all_dashboards() -> None:
    made = credentials()
    files = subject.write_files(place(), made)
    (source,) = json.loads(files["provisioning/datasources/muster.yaml"])["datasources"]
    assert source["url"] == PEER.endpoint and source["basicAuthUser"] == PEER.user
    assert source["secureJsonData"] == {"tlsCACert": "PEM", "basicAuthPassword": "hidden-password"}
    (provider,) = json.loads(files["provisioning/dashboards/muster.yaml"])["providers"]
    boards = [
        json.loads(text) for name, text in files.items() if f"/files/{name}".startswith(provider["options"]["path"])
    ]
    assert {board["uid"] for board in boards} == {"muster-fleet", "muster-job", "muster-health"}
    assert provider["allowUiUpdates"] is False and files["admin-password"] == made[subject.PASSWORD]


def test_a_token_is_sent_as_a_header() -> None:
    source = subject.describe_source(Peer("http://10.0.0.5:9090", token="tok"))
    assert source["secureJsonData"] == {"httpHeaderValue1": "Bearer tok"} and "basicAuth" not in source


def test_no_one_is_let_in_without_a_login_and_no_secret_is_a_variable() -> None:
    made = credentials()
    settings = subject.write_environment(place())
    assert settings["GF_AUTH_ANONYMOUS_ENABLED"] == settings["GF_USERS_ALLOW_SIGN_UP"] == "false"
    assert settings["GF_SERVER_PROTOCOL"] == "https"
    assert not {made[subject.PASSWORD], PEER.password} & set(settings.values())


def test_on_a_host_it_is_refused_with_the_way_on(tmp_path: object) -> None:
    world = RunWorld(tmp_path)  # type: ignore[arg-type]
    entry = {"name": "board", "kind": "monitoring", "mode": "deploy", "provider": "grafana"}
    entry["deploy"] = {"host": "a", "prometheus": "http://10.0.0.5:9090"}  # type: ignore[assignment]
    with pytest.raises(InputError) as caught:
        deploy.run(world.request(None, service=entry), [])
    assert "deploy.host: grafana is deployed in clusters" in str(caught.value) and "monitoring_files" in str(
        caught.value.fix
    )
    world.close()
