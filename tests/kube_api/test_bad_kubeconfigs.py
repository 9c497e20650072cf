# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a user sees for a kubeconfig that is absent, expired, of another cluster: one line, from each module alike."""

from __future__ import annotations

import base64
import contextlib
import http.server
import json
import pathlib
import threading
import time
import typing as t

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._ansible import errors as error_boundary
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.client import Client
from ansible_collections.muster.training.plugins.plugin_utils._workflows.kube_objects import (
    kube_apply,
    kube_info,
    kube_secret,
    kube_wait,
)
from ansible_collections.muster.training.tests.support.kube_api import ApiServer, free_port

Dict = dict[str, t.Any]
HERE = pathlib.Path("/")
TOKEN = "no-such-token-0123456789"
VALUE: Dict = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "default"}}
APPLY = {"field_manager": "muster", "force_conflicts": False, "validate": False, "prune": False, "timeout_s": 60}
SECRET = {"name": "s", "state": "present", "type": "Opaque", "field_manager": "muster", "force_conflicts": False}
READ = {"kind": "ConfigMap", "label_selectors": [], "field_selectors": [], "managed_fields": False}


def results(options: Dict) -> dict[str, Dict]:
    """What each module answers with these connection options."""
    wish = [{"kind": "ConfigMap", "name": "a", "namespace": "default"}]
    works: dict[str, t.Callable[[], Dict]] = {
        "apply": lambda: kube_apply.run({**APPLY, "objects": [VALUE], **options}, HERE, False, False),
        "check": lambda: kube_apply.run({**APPLY, "objects": [VALUE], **options}, HERE, True, True),
        "info": lambda: kube_info.run({**READ, **options}, HERE),
        "secret": lambda: kube_secret.run({**SECRET, "data": {"a": "b"}, **options}, HERE, False, False),
        "wait": lambda: kube_wait.run(
            {"objects": wish, "until": "present", "timeout_s": 20, **options}, HERE, False, lambda _line: None
        ),
    }
    return {name: error_boundary.run_guarded(work) for name, work in works.items()}


def refused_by_all(options: Dict, expected: str) -> None:
    for name, result in results(options).items():
        text = str(result.get("msg"))
        assert result.get("failed") and expected in text, (name, text)
        assert "\n" not in text and "Traceback" not in text and "internal error" not in text, (name, text)
        assert TOKEN not in json.dumps(result, default=str), name


def test_the_kubeconfig_is_not_there(tmp_path: pathlib.Path) -> None:
    refused_by_all({"kubeconfig": str(tmp_path / "none")}, "there is no file")


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "kubeconfig"),
        (b"\xff\xfe\x00", "kubeconfig"),
        (b"- a\n- b\n", "must be a mapping"),
        (b"<html>sign in</html>", "kubeconfig"),
        (b"apiVersion: v1\nkind: Config\ncurrent-context: gone\n", "has no context gone"),
        (b"a: &a [*a]\n", "kubeconfig"),
    ],
    ids=["empty", "no text", "a list", "a page", "a context that is not there", "itself inside"],
)
def test_the_kubeconfig_is_no_kubeconfig(tmp_path: pathlib.Path, content: bytes, expected: str) -> None:
    path = tmp_path / "config"
    path.write_bytes(content)
    refused_by_all({"kubeconfig": str(path)}, expected)


def test_the_context_is_another(api: ApiServer) -> None:
    refused_by_all({"kubeconfig": str(api.kubeconfig), "context": "production"}, "no context production. Known")


def test_the_certificate_has_ended(api: ApiServer) -> None:
    api.old_certificate("ended", "/O=system:masters/CN=ended")
    user = {
        f"client-{key}-data": base64.b64encode((api.root / f"ended.{end}").read_bytes()).decode()
        for key, end in (("certificate", "crt"), ("key", "key"))
    }
    refused_by_all({"kubeconfig": api.config(user)}, "expired on 2020-01-02")


def test_a_token_of_two_lines_is_not_sent(api: ApiServer) -> None:
    refused_by_all({"kubeconfig": api.config({"token": f"{TOKEN}\n{TOKEN}"})}, "token: holds a line break")


def test_the_token_is_not_known_any_more(api: ApiServer) -> None:
    refused_by_all({"kubeconfig": api.config({"token": TOKEN})}, "was rejected (401). Log in again")


def test_the_cluster_is_another_than_the_recorded_one(api: ApiServer, client: Client) -> None:
    before = client.get("ConfigMap", "a", "default")
    wrong = {"kubeconfig": str(api.kubeconfig), "cluster_id": "8a0d6f6e-0000-0000-0000-000000000000"}
    refused_by_all(wrong, "is another cluster")
    assert before is None and client.get("ConfigMap", "a", "default") is None, "nothing was written there"


def test_the_authority_is_another(api: ApiServer, tmp_path: pathlib.Path) -> None:
    other = ApiServer(tmp_path)
    other._openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "k", "-out", "c", "-subj", "/CN=other")
    authority = base64.b64encode((tmp_path / "c").read_bytes()).decode()
    config = api.config({"token": TOKEN}, **{"certificate-authority-data": authority})
    refused_by_all({"kubeconfig": config}, "the TLS certificate was refused")


def test_nobody_is_there(api: ApiServer) -> None:
    config = api.config({"token": TOKEN}, server=f"https://127.0.0.1:{free_port()}")
    began = time.monotonic()
    refused_by_all({"kubeconfig": config, "patience_s": 300}, "no connection")
    assert time.monotonic() - began < 60, "a server that never answered is not waited for"


@contextlib.contextmanager
def portal(status: int) -> t.Iterator[int]:
    """A web server that answers every request with one page: with 200 a login page, as of networks before sign-in."""

    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = b"<html>please sign in</html>"
            self.send_response(status)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_PATCH = do_GET

        def log_message(self, format: str, *args: object) -> None:
            return None

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()


def test_a_login_page_answers_in_its_place(api: ApiServer) -> None:
    with portal(200) as port:
        config = api.config({"token": TOKEN}, server=f"http://127.0.0.1:{port}")
        del config["clusters"][0]["cluster"]["certificate-authority-data"]
        refused_by_all({"kubeconfig": config}, "whether a proxy or login page answers in its place")


def test_a_web_server_is_no_api_server(api: ApiServer) -> None:
    with portal(404) as port:
        config = api.config({"token": TOKEN}, server=f"http://127.0.0.1:{port}")
        refused_by_all({"kubeconfig": config}, "Check that the kubeconfig's server is an API server")
