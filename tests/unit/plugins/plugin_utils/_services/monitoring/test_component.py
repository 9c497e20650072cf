# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Prometheus as it is deployed, by the real program: HTTPS, one user, bound, and a run that sends its metrics to it."""

from __future__ import annotations

import base64
import contextlib
import json
import pathlib
import ssl
import subprocess
import sys
import typing as t
import urllib.error
import urllib.request

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError
from ansible_collections.muster.training.plugins.module_utils._model.service import parse_services
from ansible_collections.muster.training.plugins.plugin_utils._services import own_certificate
from ansible_collections.muster.training.plugins.plugin_utils._services.component import TLS_CERTIFICATE, TLS_KEY, Site
from ansible_collections.muster.training.plugins.plugin_utils._services.monitoring import component as subject
from ansible_collections.muster.training.plugins.plugin_utils._workflows.services import bind
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared import deployed
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared.state_dir import StateHome
from ansible_collections.muster.training.tests.support.kube_api import free_port
from ansible_collections.muster.training.tests.support.prometheus_program import find
from ansible_collections.muster.training.tests.support.run_world import RunWorld

SERVICE: dict[str, t.Any] = {"name": "own", "kind": "monitoring", "mode": "deploy", "deploy": {"host": "a"}}
STEP = "import json, os, time; open(os.environ['MUSTER_METRICS_FILE'], 'a').write(json.dumps({'at': time.time(), 'step': 7}) + chr(10))"


def site(root: pathlib.Path, **more: t.Any) -> Site:
    port = free_port()
    for name in ("data", "files"):
        (root / name).mkdir(parents=True, exist_ok=True)
    return Site("own", f"https://127.0.0.1:{port}", "127.0.0.1", port, str(root / "data"), str(root / "files"), **more)


def make(place: Site) -> dict[str, str]:
    """Write the files of the service as its host gets them; return its credentials."""
    pair = own_certificate.make("own", ["127.0.0.1"], [])
    texts = zip((TLS_KEY, TLS_CERTIFICATE), pair, strict=True)
    made = {**subject.make_credentials(), **{name: base64.b64encode(text.encode()).decode() for name, text in texts}}
    for name, text in subject.write_files(place, made).items():
        pathlib.Path(place.files, name).write_text(text)
    return made


def test_the_program_reads_its_settings(tmp_path: pathlib.Path) -> None:
    place = site(tmp_path, alertmanager="https://alerts.example.com:9093/am")
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
    assert alerts["path_prefix"] == "/am" and alerts["scheme"] == "https"
    assert made[subject.PASSWORD] not in "".join(path.read_text() for path in pathlib.Path(place.files).iterdir())
    assert "alerting" not in subject.write_files(site(tmp_path / "b"), made)["prometheus.yml"]


@contextlib.contextmanager
def serving(place: Site, ca: str) -> t.Iterator[None]:
    log = pathlib.Path(place.data).with_name("prometheus.log")
    with log.open("wb") as out:
        process = subprocess.Popen([find("prometheus"), *subject.command(place)], stdout=out, stderr=out)
    try:
        for _attempt in range(200):
            with contextlib.suppress(urllib.error.URLError, TimeoutError):
                ask(place, ca, "/-/ready")
                break
            assert process.poll() is None, log.read_text()[-2000:]
        yield
    finally:
        process.terminate()
        process.wait(20)


def ask(place: Site, ca: str, path: str, user: str = "") -> tuple[int, str]:
    """Return status and text of an answer."""
    headers = {"Authorization": f"Basic {base64.b64encode(user.encode()).decode()}"} if user else {}
    request = urllib.request.Request(f"{place.endpoint}{path}", headers=headers)
    context = ssl.create_default_context(cadata=ca)
    try:
        with urllib.request.urlopen(request, timeout=5, context=context) as answer:
            return int(answer.status), answer.read().decode()
    except urllib.error.HTTPError as error:
        return int(error.code), ""


def test_it_is_bound_and_takes_the_metrics_of_a_run(tmp_path: pathlib.Path) -> None:
    world, place = RunWorld(tmp_path), site(tmp_path / "own")
    made = make(place)
    ca = base64.b64decode(made[TLS_CERTIFICATE]).decode()
    home = StateHome({"path": str(world.root / "home")}, "default")
    deployed.write_credentials(home, "own", made)
    about = {"provider": "prometheus", "endpoint": place.endpoint, "backend": "hosts", "place": {}}
    deployed.write_deployed(home, "own", about)
    with serving(place, ca):
        user = f"{made[subject.USER]}:{made[subject.PASSWORD]}"
        query = "/api/v1/query?query=up"
        assert [ask(place, ca, query, name)[0] for name in ("", "a:b", user)] == [401, 401, 200]
        (binding,) = bind.run(world.request(None, services=[SERVICE], require_all=True))["bindings"]
        assert binding["ca"] == ca and [row["ok"] for row in binding["reachable_from"]] == [True, True]
        assert made[subject.PASSWORD] not in json.dumps(binding)
        found = world.play(world.job(sys.executable, "-c", STEP, monitoring="own"))
        assert found["run"]["outcome"] == "succeeded"
        assert not [line for line in world.said.lines if "metrics are not sent" in line]
        kept = json.loads(ask(place, ca, "/api/v1/query?query=muster_run_step", user)[1])["data"]["result"]
        assert [(item["metric"]["run"], item["value"][1]) for item in kept] == [(world.run_id, "7")]
        deployed.write_credentials(home, "own", {**made, subject.PASSWORD: "another-password-0001"})
        with pytest.raises(InputError, match="refuses the credentials"):
            bind.run(world.request(None, services=[SERVICE], require_all=True))
    world.close()


@pytest.mark.parametrize(
    ("deploy", "words"),
    [
        ({"namespace": "monitoring"}, "deploy.namespace: is not for monitoring"),
        ({"host": "a", "alertmanager": "10.0.0.5:9093"}, "deploy.alertmanager: is not the address of a server"),
        ({"host": "a", "login": True}, "deploy.login: is for kind: tracking"),
    ],
)
def test_what_cannot_be_deployed_is_named(deploy: dict[str, t.Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        parse_services([{**SERVICE, "deploy": deploy}])


def test_an_alertmanager_is_of_this_kind_alone() -> None:
    place = {"host": "a", "alertmanager": "http://10.0.0.5:9093"}
    with pytest.raises(InputError, match="deploy.alertmanager: is for kind: monitoring"):
        parse_services([{**SERVICE, "kind": "registry", "deploy": place}])
