# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Kubeconfigs: what is read, what wins, what is refused; the same result as the package kubernetes gives."""

from __future__ import annotations

import base64
import copy
import json
import pathlib
import typing as t

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError, MusterError
from ansible_collections.muster.training.plugins.module_utils._secrets.scrubber import scrub
from ansible_collections.muster.training.plugins.plugin_utils._kube.api import kubeconfig
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.connect import connect

CA = "-----BEGIN CERTIFICATE-----\nY2E=\n-----END CERTIFICATE-----\n"


CERT = "-----BEGIN CERTIFICATE-----\nY2VydA==\n-----END CERTIFICATE-----\n"


KEY = "-----BEGIN PRIVATE KEY-----\nc2VjcmV0LWtleQ==\n-----END PRIVATE KEY-----\n"


def b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def config(user: dict[str, t.Any] | None = None, **cluster: t.Any) -> dict[str, t.Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "one",
        "clusters": [{"name": "c", "cluster": {"server": "https://kube.example:6443", **cluster}}],
        "users": [{"name": "u", "user": user or {}}],
        "contexts": [{"name": "one", "context": {"cluster": "c", "user": "u", "namespace": "team"}}],
    }


def written(folder: pathlib.Path, value: t.Any, name: str = "config") -> str:
    path = folder / name
    path.write_text(value if isinstance(value, str) else yaml.safe_dump(value))
    return str(path)


SAYS = {
    "apiVersion": "client.authentication.k8s.io/v1",
    "kind": "ExecCredential",
    "status": {"token": "token-of-exec-1"},
}


EXEC = {
    "apiVersion": "client.authentication.k8s.io/v1",
    "command": "sh",
    "args": ["-c", 'test "$ROLE" = admin && echo "$SAYS"'],
    "env": [{"name": "ROLE", "value": "admin"}, {"name": "SAYS", "value": json.dumps(SAYS)}],
    "interactiveMode": "Never",
}


CASES: dict[str, dict[str, t.Any]] = {
    "token": config({"token": "token-0123456789"}, **{"certificate-authority-data": b64(CA)}),
    "token file": config({"tokenFile": "token.txt"}),
    "basic": config({"username": "someone", "password": "pass-word-01"}),
    "certificates as data": config({"client-certificate-data": b64(CERT), "client-key-data": b64(KEY)}),
    "certificates as files": config(
        {"client-certificate": "cert.pem", "client-key": "key.pem"}, **{"certificate-authority": "ca.pem"}
    ),
    "insecure": config({"token": "token-0123456789"}, **{"insecure-skip-tls-verify": True}),
    "server name": config({"token": "token-0123456789"}, **{"tls-server-name": "other.example"}),
    "a path in the address": config({"token": "token-0123456789"}, server="https://rancher.example/k8s/clusters/c-1"),
    "a program": config({"exec": EXEC}),
    "a proxy": config({"token": "token-0123456789"}, **{"proxy-url": "http://proxy.example:3128"}),
    "no user": {**config(), "contexts": [{"name": "one", "context": {"cluster": "c"}}]},
}


@pytest.mark.parametrize("name", CASES)
def test_parity_with_the_package_kubernetes(name: str, tmp_path: pathlib.Path) -> None:
    from kubernetes import client
    from kubernetes import config as peer

    for file, text in (("token.txt", "token-from-file-1"), ("cert.pem", CERT), ("key.pem", KEY), ("ca.pem", CA)):
        (tmp_path / file).write_text(text)
    path = written(tmp_path, CASES[name])
    ours = connect({"kubeconfig": path})
    theirs = client.Configuration()
    peer.load_kube_config(path, client_configuration=theirs, persist_config=False)
    access = kubeconfig.load_access({"kubeconfig": path}, {})
    assert str(access.server) == theirs.host
    assert access.verify == theirs.verify_ssl
    assert access.server_name == (theirs.tls_server_name or "")
    sent = ours.transport.credential.headers().get("Authorization")
    assert sent == (theirs.api_key.get("BearerToken") or theirs.api_key.get("authorization"))
    proxy = access.proxy if isinstance(access.proxy, str) else f"http://{access.proxy.host}:{access.proxy.port}"
    assert proxy == (theirs.proxy or "env")
    assert access.ca_pem == (pathlib.Path(theirs.ssl_ca_cert).read_text() if theirs.ssl_ca_cert else "")
    certificate = pathlib.Path(theirs.cert_file).read_text() if theirs.cert_file else ""
    key = pathlib.Path(theirs.key_file).read_text() if theirs.key_file else ""
    assert access.user.client_pem == (f"{certificate.rstrip()}\n{key}" if certificate else "")
    contexts, active = peer.list_kube_config_contexts(path)
    assert access.context == active["name"] and len(contexts) == 1
    assert access.namespace == active["context"].get("namespace", "default")


def test_of_several_files_the_first_wins_as_with_the_package_kubernetes(tmp_path: pathlib.Path) -> None:
    from kubernetes import client
    from kubernetes import config as peer

    first = config({"token": "first-token-01"})
    del first["current-context"]
    second = copy.deepcopy(config({"token": "second-token-02"}, server="https://second.example"))
    second["current-context"] = "two"
    second["contexts"].append({"name": "two", "context": {"cluster": "c", "user": "u"}})
    paths = [written(tmp_path, value, name) for value, name in ((first, "a"), (second, "b"))]
    joined = ":".join([*paths, str(tmp_path / "absent")])
    access = kubeconfig.load_access({}, {"KUBECONFIG": joined})
    theirs = client.Configuration()
    peer.load_kube_config(joined, client_configuration=theirs, persist_config=False)
    assert (access.context, str(access.server), access.user.token) == ("two", theirs.host, "first-token-01")
    assert "Bearer first-token-01" in theirs.api_key.values()


def test_the_account_of_a_pod(tmp_path: pathlib.Path) -> None:
    for name, text in (("token", "pod-token-0123\n"), ("ca.crt", CA), ("namespace", "team")):
        (tmp_path / name).write_text(text)
    environ = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443", "HOME": str(tmp_path)}
    access = kubeconfig.load_access({}, environ, tmp_path)
    assert str(access.server) == "https://[fd00::1]" and access.namespace == "team"
    assert access.user.token_file == str(tmp_path / "token")


WRONG: list[tuple[str, t.Any, dict[str, t.Any], str]] = [
    ("no current context", {**config(), "current-context": ""}, {}, "has no current context. Name one of: one"),
    ("wrong context", config(), {"context": "two"}, "has no context two. Known contexts: one"),
    ("not YAML", "a: [", {}, r"is not valid YAML \(line"),
    ("a list", "[]", {}, "must be a mapping"),
    ("no cluster", {**config(), "clusters": []}, {}, "has no cluster c"),
    ("no user", {**config(), "users": []}, {}, "has no user u"),
    ("no server", config(server=""), {}, "kubeconfig cluster c server: must be a URL"),
    ("plain http", config(server="http://kube.example"), {}, "must use https"),
    (
        "half a certificate",
        config({"client-certificate-data": b64(CERT)}),
        {},
        "has a client certificate without its key",
    ),
    ("bad base64", config(**{"certificate-authority-data": "%%%"}), {}, "is not base64"),
    (
        "a file that is not there",
        config({"client-key": "x", "client-certificate": "x"}),
        {},
        r"cannot read .*no such file",
    ),
    ("socks", config(**{"proxy-url": "socks5://127.0.0.1:1"}), {}, "socks5 proxies are not supported"),
]


@pytest.mark.parametrize(("value", "options", "expected"), [c[1:] for c in WRONG], ids=[c[0] for c in WRONG])
def test_what_is_wrong_is_one_line(
    value: t.Any, options: dict[str, t.Any], expected: str, tmp_path: pathlib.Path
) -> None:
    path = written(tmp_path, value)
    with pytest.raises(InputError, match=expected) as caught:
        kubeconfig.load_access({"kubeconfig": path, **options}, {})
    assert "\n" not in str(caught.value)


def test_an_absent_file_says_what_to_set(tmp_path: pathlib.Path) -> None:
    with pytest.raises(
        InputError, match=r"there is no file .*/none. Set the option kubeconfig or the variable KUBECONFIG"
    ):
        kubeconfig.load_access({"kubeconfig": str(tmp_path / "none")}, {})
    with pytest.raises(InputError, match=r"there is no file .*/.kube/config"):
        kubeconfig.load_access({}, {"HOME": str(tmp_path)}, tmp_path / "no-account")


def test_options_win_over_the_kubeconfig(tmp_path: pathlib.Path) -> None:
    (tmp_path / "ca").write_text(CA)
    given_options = {
        "kubeconfig": config({"exec": {"command": "x"}}),
        "token": "option-token-1",
        "validate_certs": False,
    }
    access = kubeconfig.load_access({**given_options, "ca_path": str(tmp_path / "ca"), "server_name": "n"}, {})
    assert access.user.token == "option-token-1" and access.user.exec is None
    assert (access.verify, access.ca_pem, access.server_name) == (False, CA, "n")


def test_impersonation_and_bad_types() -> None:
    access = kubeconfig.load_access(
        {"kubeconfig": config({"token": "t-0123456789", "as": "other", "as-groups": ["g"]})}, {}
    )
    assert dict(access.user.headers) == {"Impersonate-User": "other", "Impersonate-Group": "g"}
    with pytest.raises(InputError, match="exec must be a mapping"):
        kubeconfig.load_access({"kubeconfig": config({"exec": "x"})}, {})


def test_secrets_do_not_show() -> None:
    value = config({"token": "very-hidden-token", "password": "very-hidden-word", "username": "u"})
    access = kubeconfig.load_access({"kubeconfig": value}, {})
    assert "very-hidden" not in repr(access)
    assert scrub("a very-hidden-token b very-hidden-word") == "a ******** b ********"


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=8),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    ["clusters", "users", "contexts", "current-context", "name", "cluster", "user", "server"]
                ),
                inner,
                max_size=4,
            )
        ),
        max_leaves=12,
    )
)
def test_any_content_is_read_or_refused(value: t.Any) -> None:
    if not isinstance(value, dict):
        return
    try:
        kubeconfig.load_access({"kubeconfig": value}, {})
    except MusterError as error:
        assert "\n" not in str(error)


@pytest.mark.parametrize(
    ("option", "expected"),
    [("none", "none"), ("env", "env"), ("http://other.example:8080", ("other.example", 8080))],
)
def test_the_option_proxy_wins_over_the_kubeconfig(option: str, expected: t.Any, tmp_path: pathlib.Path) -> None:
    path = written(tmp_path, CASES["a proxy"])
    found = kubeconfig.load_access({"kubeconfig": path, "proxy": option}, {}).proxy
    assert (found if isinstance(found, str) else (found.host, found.port)) == expected


@pytest.mark.parametrize("shape", ["yaml", "json"])
def test_a_kubeconfig_may_be_given_as_its_text(shape: str) -> None:
    """As a vault, a lookup of a file or AWX gives it."""
    value = config({"token": "token-0123456789"})
    text = json.dumps(value) if shape == "json" else yaml.safe_dump(value)
    assert kubeconfig.load_access({"kubeconfig": text}, {}).user.token == "token-0123456789"


@pytest.mark.parametrize(
    "text", ["token: token-0123456789\nx: [", "- token-0123456789\n", "{token-0123456789", "a" * 3000]
)
def test_what_is_neither_a_path_nor_a_kubeconfig_is_not_quoted(text: str) -> None:
    with pytest.raises(InputError) as caught:
        kubeconfig.load_access({"kubeconfig": text}, {})
    assert "token-0123456789" not in str(caught.value) and "aaaa" not in str(caught.value)


def test_a_user_of_whom_a_part_cannot_be_impersonated_is_refused() -> None:
    with pytest.raises(InputError, match="as-user-extra"):
        kubeconfig.load_access({"kubeconfig": config({"as": "x", "as-user-extra": {"scopes": ["a"]}})}, {})


def test_the_text_of_a_lookup_is_a_kubeconfig_too() -> None:
    """Ansible returns a subclass of str, which the C parser refuses."""

    class Tagged(str):
        """A text with tags."""

        __slots__ = ()

    text = "apiVersion: v1\nkind: Config\nclusters: []\n"
    assert kubeconfig.parse_text(Tagged(text)) == kubeconfig.parse_text(text) != text
