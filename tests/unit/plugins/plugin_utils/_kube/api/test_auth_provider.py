# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Credentials of an auth-provider: read by the package kubernetes, or refused with the way out."""

from __future__ import annotations

import base64
import pathlib
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError
from ansible_collections.muster.training.plugins.plugin_utils._kube.api import auth_provider, kubeconfig
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.connect import connect


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


def test_other_kinds_go_through_the_package_kubernetes_or_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    import builtins

    value = config({"auth-provider": {"name": "gcp"}})
    real = builtins.__import__

    def absent(name: str, *args: t.Any, **kwargs: t.Any) -> t.Any:
        if name == "kubernetes":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", absent)
    with pytest.raises(InputError, match=r"auth-provider gcp is read by the package kubernetes only. Install"):
        connect({"kubeconfig": value}, environ={})


def test_an_auth_provider_is_read_by_the_package_kubernetes(monkeypatch: pytest.MonkeyPatch) -> None:
    payload = b64('{"exp": 4102444800}').rstrip("=")
    token = f"{b64('{}').rstrip('=')}.{payload}.c2lnbmF0dXJl"
    value = config({"auth-provider": {"name": "oidc", "config": {"id-token": token}}})
    access = kubeconfig.load_access({"kubeconfig": value}, {})
    assert access.user.token == token and not access.user.other
    resolved = auth_provider.resolve(
        access._replace(user=access.user._replace(token="", other="auth-provider oidc")), {"kubeconfig": value}, {}
    )
    assert resolved.user.token == token and not resolved.user.other
    unknown = config({"auth-provider": {"name": "strange"}})
    with pytest.raises(InputError, match="auth-provider strange returned no credential"):
        connect({"kubeconfig": unknown}, environ={})


@pytest.mark.parametrize(("token", "used"), [("opaque-token-0123456789", True), ("expired", False)])
def test_an_id_token_is_used_until_it_expires(token: str, used: bool) -> None:
    if token == "expired":
        token = f"{b64('{}').rstrip('=')}.{b64('{"exp": 1000000000}').rstrip('=')}.c2lnbmF0dXJl"
    value = config({"auth-provider": {"name": "oidc", "config": {"id-token": token, "refresh-token": "r-0123456789"}}})
    access = kubeconfig.load_access({"kubeconfig": value}, {})
    assert (access.user.token, access.user.other) == ((token, "") if used else ("", "auth-provider oidc"))


def test_what_an_exec_plugin_says_of_its_failure_is_shown_without_secrets(tmp_path: pathlib.Path) -> None:
    place = tmp_path / "plugin.sh"
    place.write_text('#!/bin/sh\necho first >&2\necho "No credentials are configured for $SECRET" >&2\nexit 253\n')
    place.chmod(0o755)
    plugin = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": str(place),
        "interactiveMode": "IfAvailable",
        "env": [{"name": "SECRET", "value": "very-secret-value-1"}],
    }
    with pytest.raises(InputError) as caught:
        connect({"kubeconfig": config({"exec": plugin})}, environ={}).get("Namespace", "v1", "a")
    told = str(caught.value)
    assert "plugin.sh exited with status 253: No credentials are configured for" in told
    assert "very-secret-value-1" not in told and "\n" not in told
