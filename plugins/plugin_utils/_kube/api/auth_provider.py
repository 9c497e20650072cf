# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Resolves auth-provider credentials of a kubeconfig with the Python package kubernetes, where it is installed."""

from __future__ import annotations

import base64
import typing as t
from collections.abc import Mapping

from ....module_utils._model.errors import InputError
from .kubeconfig import ClusterAccess, KubeUser, register_secret

_FIX = "Use an exec plugin (kubelogin for oidc) or the options host and token; an id-token is used until it expires"


def resolve(access: ClusterAccess, options: Mapping[str, object], environ: Mapping[str, str]) -> ClusterAccess:
    """Return ``access`` with the credential that the package kubernetes reads for its context.

    :raises InputError: naming the package when it is not installed, or why it found no credential.
    """
    option = f"kubeconfig user {access.user.name}"
    try:
        from kubernetes import client, config
    except ImportError:
        fix = "Install the Python package kubernetes on this machine, or use an exec plugin"
        raise InputError(option, f"{access.user.other} is read by the package kubernetes only", fix) from None
    configuration = client.Configuration()
    loader: t.Any = config
    source: t.Any = options.get("kubeconfig") or environ.get("KUBECONFIG")
    try:
        if isinstance(source, Mapping):
            loader.load_kube_config_from_dict(
                dict(source), context=access.context, client_configuration=configuration, persist_config=False
            )
        else:
            loader.load_kube_config(
                source, context=access.context, client_configuration=configuration, persist_config=False
            )
    except Exception as exc:
        # Anything may be raised by a provider's own code, and its text may quote a token.
        raise InputError(option, f"{access.user.other} returned no credential ({type(exc).__name__})", _FIX) from None
    return access._replace(user=_with_credential(access.user, configuration.api_key, option))


def _with_credential(user: KubeUser, keys: Mapping[str, str], option: str) -> KubeUser:
    """Return the user with the token or password of ``keys``, which are headers by the names of the package.

    :raises InputError: when there is none of them, and no client certificate.
    """
    header = str(keys.get("BearerToken") or keys.get("authorization") or "")
    kind, _unused, value = header.partition(" ")
    if kind.lower() == "bearer" and value:
        return user._replace(token=register_secret(value), other="")
    if kind.lower() == "basic" and value:
        name, _unused, password = base64.b64decode(value).decode().partition(":")
        return user._replace(basic=(name, register_secret(password)), other="")
    if user.client_pem:
        return user._replace(other="")
    raise InputError(option, f"{user.other} returned no credential", _FIX)
