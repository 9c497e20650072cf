# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A real OpenBao for end-to-end tests, in dev mode on loopback."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import pathlib
import ssl
import subprocess
import time
import typing as t
import urllib.error
import urllib.request
import uuid

from ansible_collections.muster.training.plugins.plugin_utils._services import openbao as openbao_component
from ansible_collections.muster.training.plugins.plugin_utils._services import own_certificate
from ansible_collections.muster.training.plugins.plugin_utils._services.component import TLS_CERTIFICATE, TLS_KEY, Site
from ansible_collections.muster.training.tests.e2e.service_world import free_port, services_python, wait_for

# Of this process alone: the same test may run beside it, and processes are searched too.
CANARY = f"kv-{uuid.uuid4().hex[:8]}/ü&bird cage"
ROOT_TOKEN = f"canary-root-token-{uuid.uuid4().hex[:8]}"


class Bao(t.NamedTuple):
    """A running OpenBao."""

    url: str

    def ask(self, method: str, path: str, body: t.Any = None, token: str = ROOT_TOKEN) -> t.Any:
        """Return the answer of its API, None for one without a body."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"X-Vault-Token": token, "Content-Type": "application/json"}
        request = urllib.request.Request(f"{self.url}/v1/{path}", data, headers, method=method)
        with urllib.request.build_opener().open(request, timeout=10) as answer:
            return json.loads(answer.read() or b"null")

    def is_alive(self, token: str) -> bool:
        """Return whether a token opens anything."""
        try:
            self.ask("GET", "auth/token/lookup-self", token=token)
        except urllib.error.HTTPError:
            return False
        return True

    def make_token(self, rules: str, ttl: str = "1h") -> str:
        """Return a token that may do what these rules of a policy say."""
        self.ask("PUT", "sys/policies/acl/controller", {"policy": rules})
        made = self.ask("POST", "auth/token/create", {"policies": ["controller"], "ttl": ttl})
        return str(made["auth"]["client_token"])


def bind_bao(bao: Bao) -> dict[str, t.Any]:
    """Return a service of ``muster_services`` that binds it."""
    pointer = {"from": "env", "keys": {"token": "BAO_TOKEN"}}
    return {"name": "bao", "kind": "secrets", "mode": "bind", "endpoint": bao.url, "secret_ref": pointer}


@contextlib.contextmanager
def openbao(root: pathlib.Path) -> t.Iterator[Bao]:
    """Run OpenBao with one secret."""
    port, log = free_port(), root / "bao.log"
    argv = [str(pathlib.Path(services_python()).parent / "bao"), "server", "-dev", "-dev-no-store-token"]
    argv += [f"-dev-listen-address=127.0.0.1:{port}"]
    environment = {**os.environ, "BAO_DEV_ROOT_TOKEN_ID": ROOT_TOKEN, "HOME": str(root)}
    with log.open("wb") as handle:
        process = subprocess.Popen(argv, env=environment, stdout=handle, stderr=handle)
    try:
        found = Bao(f"http://127.0.0.1:{port}")
        wait_for(f"{found.url}/v1/sys/health", process, log)
        found.ask("POST", "secret/data/team/train", {"data": {"TOKEN": CANARY}})
        yield found
    finally:
        process.kill()
        process.wait()
        # Its log has the token of dev mode, which this test knows.
        log.unlink()


class Deployed(t.NamedTuple):
    """OpenBao with the settings and the set-up of a deployed one."""

    url: str
    credentials: dict[str, str]
    ca: str

    def ask(self, method: str, path: str, body: t.Any = None) -> t.Any:
        """Return what its API answers its administrator."""
        headers = {"X-Vault-Token": self.credentials[openbao_component.ADMIN], "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.url}/v1/{path}", data, headers, method=method)
        trusted = urllib.request.HTTPSHandler(context=ssl.create_default_context(cadata=self.ca))
        with urllib.request.build_opener(trusted).open(request, timeout=10) as answer:
            return json.loads(answer.read() or b"null")


@contextlib.contextmanager
def deployed_openbao(root: pathlib.Path) -> t.Iterator[Deployed]:
    """Run OpenBao with the files that a deployment writes, as its unit does."""
    port, files, data = free_port(), root / "files", root / "data"
    for folder in (files, data):
        folder.mkdir(parents=True)
    key, certificate = own_certificate.make("openbao", ["127.0.0.1"], ["localhost"])
    tls = {TLS_KEY: base64.b64encode(key.encode()).decode()}
    tls[TLS_CERTIFICATE] = base64.b64encode(certificate.encode()).decode()
    found = Deployed(f"https://127.0.0.1:{port}", {**openbao_component.make_credentials(), **tls}, certificate)
    site = Site("bao", found.url, "127.0.0.1", port, str(data), str(files))
    for name, text in openbao_component.write_files(site, found.credentials).items():
        (files / name).write_text(text)
    log = root / "bao.log"
    argv = [str(pathlib.Path(services_python()).parent / "bao"), *openbao_component.command(site)]
    with log.open("wb") as handle:
        process = subprocess.Popen(argv, env={**os.environ, "HOME": str(root)}, stdout=handle, stderr=handle)
    try:
        end = time.monotonic() + 60
        while True:
            assert process.poll() is None and time.monotonic() < end, log.read_text()[-2000:]
            with contextlib.suppress(OSError):
                found.ask("GET", "auth/token/lookup-self")
                break
            time.sleep(0.05)
        yield found
    finally:
        process.kill()
        process.wait()
