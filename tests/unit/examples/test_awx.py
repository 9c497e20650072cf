# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files for AWX: ``setup.yml`` against a server that answers as AWX's API does, and what the files name exists."""

from __future__ import annotations

import http.server
import json
import os
import pathlib
import subprocess
import sys
import threading
import typing as t
import urllib.parse

import pytest
import yaml

from ansible_collections.muster.training.plugins.plugin_utils._providers import registry
from ansible_collections.muster.training.tools import variables

ROOT = pathlib.Path(__file__).parents[3]
FOLDER = ROOT / "examples" / "awx"
TOKEN = "token-canary-5c11"
Sent = list[tuple[str, dict[str, t.Any]]]


class Awx(http.server.BaseHTTPRequestHandler):
    """Answers as the API of AWX: a filter by name, 201 with the object, the survey below the template."""

    objects: t.ClassVar[dict[str, list[dict[str, t.Any]]]] = {}
    surveys: t.ClassVar[dict[str, dict[str, t.Any]]] = {}
    written: t.ClassVar[Sent] = []

    def do_GET(self) -> None:
        place = urllib.parse.urlsplit(self.path)
        if "survey_spec" in place.path:
            self.answer(200, self.surveys.get(place.path, {}))
            return
        (name,) = urllib.parse.parse_qs(place.query)["name"]
        found = [item for item in self.objects.get(place.path, []) if item["name"] == name]
        self.answer(200, {"count": len(found), "results": found})

    def do_POST(self) -> None:
        body = self.read()
        if "survey_spec" in self.path:
            self.surveys[self.path] = body
            self.answer(200, {})
            return
        made = {"id": 10 + len(self.written), "created": "2026-11-01T00:00:00Z", **body}
        self.objects.setdefault(self.path, []).append(made)
        self.answer(201, made)

    def do_PATCH(self) -> None:
        folder, _slash, ident = self.path.strip("/").rpartition("/")
        (found,) = [item for item in self.objects[f"/{folder}/"] if item["id"] == int(ident)]
        found |= self.read()
        self.answer(200, found)

    def read(self) -> dict[str, t.Any]:
        body: dict[str, t.Any] = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.written.append((f"{self.command} {self.path}", body))
        return body

    def answer(self, status: int, value: t.Any) -> None:
        assert self.headers["Authorization"] == f"Bearer {TOKEN}"
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: t.Any) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def address() -> t.Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Awx) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def set_up(address: str, home: pathlib.Path, *more: str, **changes: t.Any) -> Sent:
    """Run the playbook; return what it asks AWX to write, as (method and path, body)."""
    words = {"awx_url": address, "awx_organization": 1, "awx_inventory": 2}
    words |= {"awx_project": 6, "awx_image": "registry.example.com/muster-ee:1", **changes}
    program = os.fspath(pathlib.Path(sys.executable).parent / "ansible-playbook")
    argv = [program, "-i", "localhost,", "-c", "local", str(FOLDER / "setup.yml"), "-e", json.dumps(words), *more]
    environment = {**os.environ, "AWX_TOKEN": TOKEN, "HOME": str(home), "ANSIBLE_HOME": str(home)}
    environment |= {"ANSIBLE_PYTHON_INTERPRETER": sys.executable}
    before = len(Awx.written)
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0 and TOKEN not in done.stdout, done.stdout + done.stderr
    return Awx.written[before:]


@pytest.fixture(scope="module")
def sent(address: str, tmp_path_factory: pytest.TempPathFactory) -> Sent:
    """What the first run asks AWX to write."""
    return set_up(address, tmp_path_factory.mktemp("home"))


def test_all_is_made_in_the_order_in_which_one_names_the_other(sent: Sent) -> None:
    paths = [path.replace("/api/v2/", "") for path, _body in sent]
    types = ["POST credential_types/"] * 3
    template = ["POST job_templates/", "POST job_templates/15/survey_spec/"]
    assert paths == ["POST execution_environments/", *types, *template]
    body = sent[4][1]
    assert (body["execution_environment"], body["inventory"], body["project"]) == (11, 2, 6)


def test_a_second_run_writes_what_differs(sent: Sent, address: str, tmp_path: pathlib.Path) -> None:
    newer = "registry.example.com/muster-ee:2"
    changes = [("PATCH /api/v2/execution_environments/11/", {"image": newer})]
    assert set_up(address, tmp_path, "--check", awx_image=newer) == []
    assert set_up(address, tmp_path, awx_image=newer) == changes
    assert set_up(address, tmp_path, awx_image=newer) == []


def test_credentials_are_variables_that_the_collection_reads(sent: Sent) -> None:
    """Their values are templates that AWX fills in, each of a field of the type."""
    known = {declared.variable for declared in registry.find_providers().values()} | {"BAO_TOKEN", "VAULT_TOKEN"}
    known |= {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"}
    for _path, body in sent[1:4]:
        fields = {field["id"] for field in body["inputs"]["fields"]}
        values = body["injectors"]["env"]
        assert set(values) <= known and set(values.values()) == {f"{{{{ {name} }}}}" for name in fields}, body


def test_the_survey_asks_for_variables_of_the_playbook(sent: Sent) -> None:
    asked = {question["variable"]: question for question in sent[-1][1]["spec"]}
    assert all("train" in variables.find_users()[name] for name in asked), asked
    assert asked["muster_run_id"]["required"] is False and asked["muster_extend"]["default"] == "false"


def test_a_template_has_a_job_template_whose_survey_asks_for_its_inputs(address: str, tmp_path: pathlib.Path) -> None:
    made, survey = set_up(address, tmp_path, awx_template="pytorch-ddp")[-2:]
    assert made[1]["name"] == "muster train pytorch-ddp"
    assert json.loads(made[1]["extra_vars"]) == {"muster_template": "pytorch-ddp"}
    asked = {question["variable"]: question for question in survey[1]["spec"]}
    assert asked["muster_inputs_code"]["required"] is True and asked["muster_inputs_nnodes"]["default"] == 1
    assert "muster_run_id" in asked and "muster_inputs_hf_token" not in asked
    sources = [{"path": str(tmp_path)}]
    ((path, change),) = set_up(address, tmp_path, awx_template="pytorch-ddp", awx_catalogue_sources=sources)
    assert path.startswith("PATCH /api/v2/job_templates/")
    assert json.loads(change["extra_vars"])["muster_catalogue_sources"] == sources


def test_the_image_has_what_the_collection_needs() -> None:
    value = yaml.safe_load((FOLDER / "execution-environment.yml").read_text())
    assert value["version"] == 3
    assert value["dependencies"]["ansible_core"]["package_pip"] == "ansible-core>=2.20"
    own = yaml.safe_load((ROOT / "meta" / "execution-environment.yml").read_text())["dependencies"]
    assert all((ROOT / place).is_file() for place in own.values())
