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

import pytest
import yaml

from ansible_collections.muster.training.plugins.plugin_utils._providers import registry
from ansible_collections.muster.training.tools import variables

ROOT = pathlib.Path(__file__).parents[3]
FOLDER = ROOT / "examples" / "awx"
TOKEN = "token-canary-5c11"
Sent = list[tuple[str, dict[str, t.Any]]]


@pytest.fixture(scope="module")
def sent(tmp_path_factory: pytest.TempPathFactory) -> Sent:
    """What the playbook asks of AWX, as (path, body)."""
    asked: Sent = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            assert self.headers["Authorization"] == f"Bearer {TOKEN}"
            asked.append((self.path, json.loads(self.rfile.read(int(self.headers["Content-Length"])))))
            answer = b"{}" if "survey" in self.path else json.dumps({"id": 10 + len(asked)}).encode()
            self.send_response(200 if "survey" in self.path else 201)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: t.Any) -> None:
            """Say nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        words = {"awx_url": f"http://127.0.0.1:{server.server_port}", "awx_organization": 1, "awx_inventory": 2}
        words |= {"awx_project": 6, "awx_image": "registry.example.com/muster-ee:1"}
        program = os.fspath(pathlib.Path(sys.executable).parent / "ansible-playbook")
        argv = [program, "-i", "localhost,", "-c", "local", str(FOLDER / "setup.yml"), "-e", json.dumps(words)]
        home = tmp_path_factory.mktemp("home")
        environment = {**os.environ, "AWX_TOKEN": TOKEN, "HOME": str(home), "ANSIBLE_HOME": str(home)}
        environment |= {"ANSIBLE_PYTHON_INTERPRETER": sys.executable}
        done = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=120, check=False)
        server.shutdown()
    assert done.returncode == 0 and TOKEN not in done.stdout, done.stdout + done.stderr
    return asked


def test_all_is_made_in_the_order_in_which_one_names_the_other(sent: Sent) -> None:
    paths = [path.removeprefix("/api/v2/") for path, _body in sent]
    types = ["credential_types/"] * 3
    assert paths == ["execution_environments/", *types, "job_templates/", "job_templates/15/survey_spec/"]
    template = sent[4][1]
    assert (template["execution_environment"], template["inventory"], template["project"]) == (11, 2, 6)


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


def test_the_image_has_what_the_collection_needs() -> None:
    value = yaml.safe_load((FOLDER / "execution-environment.yml").read_text())
    assert value["version"] == 3
    assert value["dependencies"]["ansible_core"]["package_pip"] == "ansible-core>=2.20"
    own = yaml.safe_load((ROOT / "meta" / "execution-environment.yml").read_text())["dependencies"]
    assert all((ROOT / place).is_file() for place in own.values())
