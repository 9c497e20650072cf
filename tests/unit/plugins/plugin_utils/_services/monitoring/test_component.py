# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Prometheus as it is deployed, by the real program: HTTPS, one user, bound, and a run that sends its metrics to it."""

from __future__ import annotations

import base64
import json
import pathlib
import subprocess
import sys
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError
from ansible_collections.muster.training.plugins.module_utils._model.service import parse_services
from ansible_collections.muster.training.plugins.module_utils._model.service_deploy import Retention
from ansible_collections.muster.training.plugins.plugin_utils._services import own_certificate
from ansible_collections.muster.training.plugins.plugin_utils._services.component import TLS_CERTIFICATE, Peer
from ansible_collections.muster.training.plugins.plugin_utils._services.monitoring import component as subject
from ansible_collections.muster.training.plugins.plugin_utils._services.monitoring import web_login
from ansible_collections.muster.training.plugins.plugin_utils._workflows.services import bind
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared import deployed
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared.state_dir import StateHome
from ansible_collections.muster.training.tests.support.monitoring_services import SERVICE, ask, make, serving, site
from ansible_collections.muster.training.tests.support.prometheus_program import find
from ansible_collections.muster.training.tests.support.run_world import RunWorld

STEP = "import json, os, time; open(os.environ['MUSTER_METRICS_FILE'], 'a').write(json.dumps({'at': time.time(), 'step': 7}) + chr(10))"


def test_the_program_reads_its_settings(tmp_path: pathlib.Path) -> None:
    peer = Peer("https://alerts.example.com:9093/am", own_certificate.make("am", ["127.0.0.1"], [])[1], "u", "pw")
    place = site(tmp_path, peer=peer)
    made = make(place)
    for words in (("config", "prometheus.yml"), ("web-config", "web.yml"), ("rules", "muster.rules.yml")):
        done = subprocess.run(
            [find("promtool"), "check", words[0], f"{place.files}/{words[1]}"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0 and "SUCCESS" in done.stdout + done.stderr, done.stdout + done.stderr
    (alerts,) = json.loads(pathlib.Path(place.files, "prometheus.yml").read_text())["alerting"]["alertmanagers"]
    assert alerts["path_prefix"] == "/am" and alerts["scheme"] == "https" and alerts["basic_auth"]["username"] == "u"
    assert made[web_login.PASSWORD] not in "".join(path.read_text() for path in pathlib.Path(place.files).iterdir())
    assert "alerting" not in subject.write_files(site(tmp_path / "b"), made)["prometheus.yml"]


def test_in_a_cluster_it_finds_exporters_by_itself(tmp_path: pathlib.Path) -> None:
    place = site(tmp_path, in_cluster=True)
    make(place)
    words = [find("promtool"), "check", "config", "--syntax-only", f"{place.files}/prometheus.yml"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "scrape_config_files" not in pathlib.Path(place.files, "prometheus.yml").read_text()


GI = 2**30


@pytest.mark.parametrize(
    ("claim", "retention", "words"),
    [
        (None, Retention(), ("30d", "10GB")),
        (20 * GI, Retention(), ("30d", "10GB")),
        (GI, Retention(), ("30d", "858MB")),
        (GI, Retention(gb=3), ("30d", "3GB")),
        (None, Retention(days=400, gb=200), ("400d", "200GB")),
    ],
)
def test_it_keeps_no_more_than_its_claim_holds(
    tmp_path: pathlib.Path, claim: int | None, retention: Retention, words: tuple[str, str]
) -> None:
    place = site(tmp_path, volume_bytes=claim, retention=retention)
    said = [word for word in subject.command(place) if ".retention." in word]
    assert said == [
        f"--storage.tsdb.retention.{name}={word}" for name, word in zip(("time", "size"), words, strict=True)
    ]


def test_the_real_one_has_the_bounds_of_a_small_claim(tmp_path: pathlib.Path) -> None:
    place = site(tmp_path, volume_bytes=GI, retention=Retention(days=7))
    made = make(place)
    ca = base64.b64decode(made[TLS_CERTIFICATE]).decode()
    with serving(place, ca):
        user = f"{made[web_login.USER]}:{made[web_login.PASSWORD]}"
        told = json.loads(ask(place, ca, "/api/v1/status/runtimeinfo", user)[1])["data"]["storageRetention"]
    assert told == "1w or 858MiB" or told == "1w or 858MB", told


def test_it_is_bound_and_takes_the_metrics_of_a_run(tmp_path: pathlib.Path) -> None:
    world, place = RunWorld(tmp_path), site(tmp_path / "own")
    made = make(place)
    ca = base64.b64decode(made[TLS_CERTIFICATE]).decode()
    home = StateHome({"path": str(world.root / "home")}, "default")
    deployed.write_credentials(home, "own", made)
    about = {"provider": "prometheus", "endpoint": place.endpoint, "backend": "hosts", "place": {}}
    deployed.write_deployed(home, "own", about)
    with serving(place, ca):
        user = f"{made[web_login.USER]}:{made[web_login.PASSWORD]}"
        query = "/api/v1/query?query=up"
        assert [ask(place, ca, query, name)[0] for name in ("", "a:b", user)] == [401, 401, 200]
        (binding,) = bind.run(world.request(None, services=[SERVICE], require_all=True))["bindings"]
        assert binding["ca"] == ca and [row["ok"] for row in binding["reachable_from"]] == [True, True]
        assert made[web_login.PASSWORD] not in json.dumps(binding)
        found = world.play(world.job(sys.executable, "-c", STEP, monitoring="own"))
        assert found["run"]["outcome"] == "succeeded"
        assert not [line for line in world.said.lines if "metrics are not sent" in line]
        kept = json.loads(ask(place, ca, "/api/v1/query?query=muster_run_step", user)[1])["data"]["result"]
        assert [(item["metric"]["run"], item["value"][1]) for item in kept] == [(world.run_id, "7")]
        deployed.write_credentials(home, "own", {**made, web_login.PASSWORD: "another-password-0001"})
        with pytest.raises(InputError, match="refuses the credentials"):
            bind.run(world.request(None, services=[SERVICE], require_all=True))
    world.close()


@pytest.mark.parametrize(
    ("deploy", "words"),
    [
        ({"host": "a", "prometheus": "metrics"}, "deploy.prometheus: is for provider: grafana"),
        ({"host": "a", "webhook": {"from": "env"}}, "deploy.webhook: is for provider: alertmanager"),
        ({"host": "a", "alertmanager": "10.0.0.5:9093"}, "deploy.alertmanager: is not the address of a server"),
        ({"host": "a", "alertmanager": "Alerts"}, "deploy.alertmanager: must be lower-case letters"),
        ({"host": "a", "login": True}, "deploy.login: is for kind: tracking"),
        ({"host": "a", "retention": {"gb": 0}}, "deploy.retention.gb: must be at least 1"),
        ({"host": "a", "retention": {"weeks": 1}}, "deploy.retention.weeks"),
    ],
)
def test_what_cannot_be_deployed_is_named(deploy: dict[str, t.Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        parse_services([{**SERVICE, "deploy": deploy}])


def test_an_alertmanager_is_of_this_kind_alone() -> None:
    place = {"host": "a", "alertmanager": "http://10.0.0.5:9093"}
    with pytest.raises(InputError, match="deploy.alertmanager: is for kind: monitoring"):
        parse_services([{**SERVICE, "kind": "registry", "deploy": place}])


GRAFANA = {**SERVICE, "provider": "grafana", "deploy": {"namespace": "m", "prometheus": "own"}}


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({**GRAFANA, "deploy": {"namespace": "m"}}, "deploy.prometheus: is required"),
        (
            {**SERVICE, "provider": "loki"},
            "provider: 'loki' is not known. Known are: prometheus, alertmanager, grafana",
        ),
        (
            {
                **SERVICE,
                "provider": "alertmanager",
                "deploy": {"host": "a", "webhook": {"from": "env"}, "config": "a.yml"},
            },
            "deploy.config: has receivers of its own",
        ),
    ],
)
def test_other_programs_are_checked_by_their_own_rules(entry: dict[str, t.Any], words: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_services([entry])
    assert words in str(caught.value)
