# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Credentials against a real API server: certificates, tokens that are renewed, exec plugins, proxies, wrong clusters."""

from __future__ import annotations

import base64
import contextlib
import json
import pathlib
import select
import socket
import stat
import threading
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import MusterError
from ansible_collections.muster.training.plugins.module_utils._secrets.scrubber import scrub
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.client import Client
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.connect import connect
from ansible_collections.muster.training.tests.support.kube_api import ApiServer

GOOD = "reader-token-0123456789"


def who(client: Client) -> str:
    """Return the user as whom the server knows us."""
    review: dict[str, t.Any] = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "SelfSubjectReview",
        "metadata": {"name": "me"},
    }
    return str(client.create(review)["status"]["userInfo"]["username"])


def plugin(path: pathlib.Path, body: str) -> str:
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def executed(api: ApiServer, command: str, **more: t.Any) -> dict[str, t.Any]:
    return api.config({"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": command, **more}})


def test_certificates_as_data_and_as_files(api: ApiServer, client: Client, tmp_path: pathlib.Path) -> None:
    assert who(client) == "admin"
    files = {"client-certificate": "admin.crt", "client-key": "admin.key"}
    config = api.config(files)
    del config["clusters"][0]["cluster"]["certificate-authority-data"]
    config["clusters"][0]["cluster"]["certificate-authority"] = "ca.crt"
    path = api.root / "relative.kubeconfig"
    path.write_text(json.dumps(config))
    assert who(connect({"kubeconfig": str(path)})) == "admin"
    paths = {"client_cert": str(api.root / "admin.crt"), "client_key": str(api.root / "admin.key")}
    assert who(connect({"host": api.url, "ca_path": str(api.root / "ca.crt"), **paths})) == "admin"


def test_another_name_and_no_verification(api: ApiServer) -> None:
    named = connect({"kubeconfig": api.config({"token": GOOD}, **{"tls-server-name": "kube.lab"})})
    assert who(named) == "reader"
    wrong = connect({"kubeconfig": api.config({"token": GOOD}, **{"tls-server-name": "other.lab"})})
    with pytest.raises(MusterError, match="TLS certificate was refused"):
        who(wrong)
    blind = api.config({"token": GOOD}, **{"insecure-skip-tls-verify": True})
    del blind["clusters"][0]["cluster"]["certificate-authority-data"]
    assert who(connect({"kubeconfig": blind})) == "reader"


def test_a_token_file_is_read_again_after_a_401(api: ApiServer, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "token"
    path.write_text("expired-token-0123456789\n")
    client = connect({"kubeconfig": api.config({"tokenFile": str(path)})})
    with pytest.raises(
        MusterError, match=r"credential of user lab-user of context lab .* was rejected \(401\)"
    ) as caught:
        who(client)
    assert "expired-token" not in str(caught.value)
    path.write_text(f"{GOOD}\n")
    assert who(client) == "reader"


def test_an_expired_exec_token_is_renewed_once_and_kept(api: ApiServer, tmp_path: pathlib.Path) -> None:
    count = tmp_path / "count"
    answer = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential"}
    stale = json.dumps({**answer, "status": {"token": "stale-token-0123456789"}})
    fresh = json.dumps({**answer, "status": {"token": GOOD, "expirationTimestamp": "2099-01-01T00:00:00Z"}})
    body = f"echo x >> {count}\nif [ $(wc -l < {count}) -gt 1 ]; then echo '{fresh}'; else echo '{stale}'; fi"
    client = connect({"kubeconfig": executed(api, plugin(tmp_path / "login", body))})
    for _ in range(5):
        assert who(client) == "reader"
    assert count.read_text().count("x") == 2


def test_an_exec_plugin_may_give_a_certificate(api: ApiServer, tmp_path: pathlib.Path) -> None:
    status = {
        "clientCertificateData": (api.root / "admin.crt").read_text(),
        "clientKeyData": (api.root / "admin.key").read_text(),
    }
    path = tmp_path / "answer"
    answer = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status}
    path.write_text(json.dumps(answer))
    body = f'case "$KUBERNETES_EXEC_INFO" in *{api.url}*) cat {path};; esac'
    client = connect({"kubeconfig": executed(api, plugin(tmp_path / "login", body), provideClusterInfo=True)})
    assert who(client) == "admin"


@pytest.mark.parametrize(
    ("body", "more", "expected"),
    [
        ("echo no-secret-0123456789; exit 3", {}, "login exited with status 3"),
        ("echo no", {}, "not JSON"),
        ('echo \'{"kind": "ExecCredential", "apiVersion": "x", "status": {}}\'', {}, "another version"),
        ("true", {"interactiveMode": "Always"}, "is interactive"),
        ("true", {"apiVersion": "client.authentication.k8s.io/v1alpha1"}, "v1alpha1 is not supported"),
    ],
)
def test_what_is_wrong_with_an_exec_plugin_is_said(
    api: ApiServer, tmp_path: pathlib.Path, body: str, more: dict[str, t.Any], expected: str
) -> None:
    client = connect({"kubeconfig": executed(api, plugin(tmp_path / "login", body), **more)})
    with pytest.raises(MusterError, match=expected) as caught:
        who(client)
    assert "no-secret" not in str(caught.value) and "\n" not in str(caught.value)


def test_an_exec_plugin_that_is_not_installed(api: ApiServer) -> None:
    client = connect({"kubeconfig": executed(api, "no-such-login", installHint="Get it from\n the cloud")})
    with pytest.raises(MusterError, match=r"no-such-login cannot be run .*Get it from the cloud"):
        who(client)


def test_an_expired_certificate_is_named_with_its_date(api: ApiServer) -> None:
    api.old_certificate("old", "/O=system:masters/CN=old")
    pairs = (("certificate", "crt"), ("key", "key"))
    user = {f"client-{key}-data": base64.b64encode((api.root / f"old.{e}").read_bytes()).decode() for key, e in pairs}
    with pytest.raises(MusterError, match=r"client certificate of user lab-user .* expired on 2020-01-02"):
        who(connect({"kubeconfig": api.config(user)}))


def test_another_cluster_than_the_recorded_one_is_refused(api: ApiServer, client: Client) -> None:
    known = client.cluster_id()
    assert connect({"kubeconfig": str(api.kubeconfig), "cluster_id": known}).cluster_id() == known
    with pytest.raises(MusterError, match=r"is another cluster .* than expected \(0-0\)"):
        connect({"kubeconfig": str(api.kubeconfig), "cluster_id": "0-0"})


@contextlib.contextmanager
def connect_proxy() -> t.Iterator[tuple[int, list[bytes]]]:
    """An HTTP proxy that knows CONNECT; yields its port and the heads of the requests it got."""
    listener = socket.create_server(("127.0.0.1", 0))
    heads: list[bytes] = []

    def serve() -> None:
        while True:
            try:
                near, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=tunnel, args=(near,), daemon=True).start()

    def tunnel(near: socket.socket) -> None:
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += near.recv(1)
        heads.append(head)
        host, port = head.split()[1].decode().rsplit(":", 1)
        far = socket.create_connection((host, int(port)))
        near.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            for ready in select.select([near, far], [], [])[0]:
                data = ready.recv(65536)
                if not data:
                    near.close()
                    far.close()
                    return
                (far if ready is near else near).sendall(data)

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield listener.getsockname()[1], heads
    finally:
        listener.close()


def test_the_proxy_of_a_kubeconfig_is_used_even_for_this_machine(api: ApiServer) -> None:
    with connect_proxy() as (port, heads):
        config = api.config({"token": GOOD}, **{"proxy-url": f"http://user:pass-word-1@127.0.0.1:{port}"})
        assert who(connect({"kubeconfig": config})) == "reader"
        assert heads and heads[0].startswith(f"CONNECT 127.0.0.1:{api.port} ".encode())
        assert b"Proxy-Authorization: Basic " in heads[0]


def test_no_credential_is_left_in_text(api: ApiServer) -> None:
    key = (api.root / "admin.key").read_text()
    connect({"kubeconfig": str(api.kubeconfig)})
    connect({"kubeconfig": api.config({"token": GOOD})})
    assert GOOD not in scrub(f"a {GOOD} b") and key not in scrub(f"a {key} b")
    assert GOOD not in repr(
        connect({"kubeconfig": api.config({"token": GOOD})}).transport.credential.__dict__.get("_user")
    )
