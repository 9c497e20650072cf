# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What programs of monitoring are given when they are deployed, and how their alerts arrive: by the real programs."""

from __future__ import annotations

import http.server
import json
import pathlib
import re
import sys
import threading
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError, RefusedError
from ansible_collections.muster.training.plugins.module_utils._model.service import parse_services
from ansible_collections.muster.training.plugins.plugin_utils._services.component import Peer
from ansible_collections.muster.training.plugins.plugin_utils._services.monitoring import alertmanager, web_login
from ansible_collections.muster.training.plugins.plugin_utils._services.monitoring import component as prometheus
from ansible_collections.muster.training.plugins.plugin_utils._workflows.services import alert_parts, bind
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared import deployed
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared.state_dir import StateHome
from ansible_collections.muster.training.tests.support.monitoring_services import (
    SERVICE,
    ask,
    keep,
    make,
    serving,
    site,
    wait_until,
)
from ansible_collections.muster.training.tests.support.run_world import RunWorld


def test_alerts_of_a_deployed_prometheus_reach_the_webhook_of_a_deployed_alertmanager(tmp_path: pathlib.Path) -> None:
    """What the first stage leaves on the controller is what the second one is made from."""
    got: list[dict[str, t.Any]] = []
    asked: set[str] = set()

    class Webhook(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            asked.add(str(self.headers.get("Authorization")))
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    hook = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Webhook)
    threading.Thread(target=hook.serve_forever, daemon=True).start()
    world = RunWorld(tmp_path)
    home = StateHome({"path": str(world.root / "home")}, "default")
    address = f"http://127.0.0.1:{hook.server_port}/token-in-the-path"
    told = {"host": "a", "webhook": {"from": "file", "path": str(tmp_path / "hook.env")}}
    entries = [
        {**SERVICE, "name": "alerts", "provider": "alertmanager", "deploy": told},
        {**SERVICE, "deploy": {"host": "a", "alertmanager": "alerts"}},
    ]
    (tmp_path / "hook.env").write_text(f"ALERT_WEBHOOK_URL={address}\nALERT_WEBHOOK_TOKEN=hook-token-1\n")
    services = parse_services(entries)
    request = world.request(None, services=entries, require_all=True)
    with pytest.raises(RefusedError, match="no service alerts is deployed or bound"):
        alert_parts.find_alerts(request, home, services[1])
    hooked = alert_parts.find_alerts(request, home, services[0])
    first = site(tmp_path / "am", webhook=hooked.webhook, webhook_token=hooked.webhook_token)
    made = make(first, alertmanager.COMPONENT)
    ca = keep(home, "alerts", alertmanager.COMPONENT, first, made)
    second = site(tmp_path / "pm", peer=alert_parts.find_alerts(request, home, services[1]).peer)
    own = keep(home, "own", prometheus.COMPONENT, second, make(second))
    rules = pathlib.Path(second.files, prometheus.RULES.name)
    rules.write_text(re.sub(r"for: \w+", "for: 1s", rules.read_text()))
    config = pathlib.Path(second.files, "prometheus.yml")
    config.write_text(config.read_text().replace('"15s"', '"1s"').replace('"14s"', '"1s"'))
    alerting = pathlib.Path(first.files, "alertmanager.yml")
    alerting.write_text(alerting.read_text().replace('"10s"', '"1s"'))
    with serving(first, ca, alertmanager.COMPONENT), serving(second, own):
        found = {item["name"]: item for item in bind.run(request)["bindings"]}
        assert found["alerts"]["provider"] == "alertmanager" and found["own"]["provider"] == "prometheus"
        with pytest.raises(InputError, match="'alerts' is alertmanager, which takes no metrics"):
            world.play(world.job(sys.executable, "-c", "", monitoring="alerts"))
        kept = deployed.read_credentials(home, "alerts") or {}
        deployed.write_credentials(home, "alerts", {**kept, web_login.PASSWORD: "another-password-0001"})
        with pytest.raises(InputError, match="Alertmanager at .* refuses the credentials"):
            bind.run(request)
        deployed.write_credentials(home, "alerts", kept)
        # Nothing is scraped here, which the rules say.
        assert wait_until(lambda: "NoNodeMetrics" in json.dumps(got), 30), (
            pathlib.Path(first.data).with_name("alertmanager.log").read_text()[-2000:]
        )
        assert ask(first, ca, "/api/v2/alerts")[0] == 401 and asked == {"Bearer hook-token-1"}
    assert address not in json.dumps(list(found.values()))
    hook.shutdown()
    hook.server_close()
    world.close()


ALERTS = {**SERVICE, "name": "alerts", "provider": "alertmanager"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "deploy.config: cannot read"),
        ("route: [", "line 1: is not YAML"),
        ("route: {receiver: a}\n", "has no route and receivers"),
    ],
)
def test_a_configuration_that_is_none_is_named(tmp_path: pathlib.Path, text: str | None, words: str) -> None:
    if text is not None:
        (tmp_path / "am.yml").write_text(text)
    world = RunWorld(tmp_path)
    (service,) = parse_services([{**ALERTS, "deploy": {"host": "a", "config": str(tmp_path / "am.yml")}}])
    with pytest.raises(InputError, match=words):
        alert_parts.find_alerts(world.request(None), StateHome({"path": str(world.root / "home")}, "default"), service)
    world.close()


def test_what_is_missing_or_of_another_program_is_named(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ALERT_WEBHOOK_URL", raising=False)
    world = RunWorld(tmp_path)
    home, request = StateHome({"path": str(world.root / "home")}, "default"), world.request(None)
    hooked, metrics, board = parse_services(
        [
            {**ALERTS, "deploy": {"host": "a", "webhook": {"from": "env"}}},
            {**SERVICE, "deploy": {"host": "a", "alertmanager": "own2"}},
            {
                **SERVICE,
                "name": "board",
                "provider": "grafana",
                "deploy": {"namespace": "m", "prometheus": "https://p:9090/"},
            },
        ]
    )
    with pytest.raises(InputError, match="ALERT_WEBHOOK_URL is not in the environment"):
        alert_parts.find_alerts(request, home, hooked)
    place = site(tmp_path / "p")
    keep(home, "own2", prometheus.COMPONENT, place, make(place))
    with pytest.raises(InputError, match="'own2' is prometheus, not alertmanager"):
        alert_parts.find_alerts(request, home, metrics)
    assert alert_parts.find_alerts(request, home, board).peer == Peer("https://p:9090")
    world.close()
