# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes the kubeconfig of a service account with a token that expires (``kube_kubeconfig``)."""

from __future__ import annotations

import base64
import binascii
import dataclasses
import json
import pathlib
import time
import typing as t
from collections.abc import Mapping

import yaml

from ...module_utils._model.errors import InputError, MusterError, RefusedError
from ...module_utils._node import files
from .._kube.api import connect, kubeconfig
from .._kube.api.client import Client
from .._kube.api.kubeconfig import ClusterAccess
from .shared import run_record
from .shared.kube_connection import post_review, select_connection
from .shared.state_dir import StateHome

_LEAST_S = 600
# A token is renewed when less than this part of its lifetime remains.
_RENEW_BELOW = 0.25
_MODE = 0o600
_ACCOUNT = "v1/ServiceAccount"


@dataclasses.dataclass(frozen=True, slots=True)
class ServiceAccountToken:
    """The claims of a token, which are not verified here. Times are Unix seconds."""

    subject: str
    uid: str
    issued_at: float
    expires_at: float

    def is_valid_for(self, account: str, namespace: str, uid: str, now: float) -> bool:
        """Return whether the token is of this very account and is not to be renewed yet."""
        life = self.expires_at - self.issued_at
        same = self.subject == f"system:serviceaccount:{namespace}:{account}" and self.uid == uid
        return same and self.expires_at - now > _RENEW_BELOW * life


def run(options: Mapping[str, t.Any], base: pathlib.Path, check: bool) -> dict[str, object]:
    """Return the result of ``kube_kubeconfig``."""
    account, namespace = str(options["account"]), str(options["namespace"])
    if int(options["lifetime_s"]) < _LEAST_S:
        raise InputError(
            "lifetime_s", f"must be at least {_LEAST_S}", "The API server does not issue tokens with a shorter lifetime"
        )
    path = _file_path(options, namespace)
    answer: dict[str, object] = {"path": str(path), "account": account, "namespace": namespace, "expires_at": None}
    if options["state"] == "absent":
        exists = path.exists()
        if exists:
            _require_own_file(path, _read_wanted(options, base, account, namespace))
        if exists and not check:
            path.unlink()
        return {**answer, "changed": exists}
    connection = select_connection(options, base)
    access = kubeconfig.load_access(connection)
    client = connect.connect(connection)
    live = client.get(_ACCOUNT, account, namespace)
    uid = str(live["metadata"]["uid"]) if live else ""
    wanted = build_document(access, account, namespace)
    _require_own_file(path, wanted)
    token = _read_saved_token(path, wanted)
    claims = read_token(token) if token else None
    if claims and live and claims.is_valid_for(account, namespace, uid, time.time()):
        return {**answer, "changed": False, "expires_at": run_record.format_time(claims.expires_at)}
    if check:
        # In check mode the account may not have been created.
        return {**answer, "changed": True}
    if live is None:
        raise RefusedError(f"ServiceAccount {account} does not exist in the namespace {namespace}", "Create it first")
    token = request_token(client, account, namespace, int(options["lifetime_s"]))
    _write(path, with_token(wanted, token))
    issued = read_token(token)
    return {**answer, "changed": True, "expires_at": run_record.format_time(issued.expires_at) if issued else None}


def build_document(access: ClusterAccess, account: str, namespace: str) -> dict[str, object]:
    """Return the kubeconfig without its token."""
    cluster: dict[str, object] = {"server": str(access.server)}
    if access.ca_pem:
        cluster["certificate-authority-data"] = base64.b64encode(access.ca_pem.encode()).decode()
    if not access.verify:
        cluster["insecure-skip-tls-verify"] = True
    if access.server_name:
        cluster["tls-server-name"] = access.server_name
    if access.cluster.get("proxy-url"):
        cluster["proxy-url"] = str(access.cluster["proxy-url"])
    name = f"{namespace}-{account}"
    context = {"cluster": namespace, "user": name, "namespace": namespace}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": namespace,
        "clusters": [{"name": namespace, "cluster": cluster}],
        "contexts": [{"name": namespace, "context": context}],
        "users": [{"name": name, "user": {}}],
    }


def with_token(wanted: dict[str, t.Any], token: str) -> dict[str, object]:
    """Return the kubeconfig with its token."""
    (user,) = wanted["users"]
    return {**wanted, "users": [{**user, "user": {"token": token}}]}


def read_token(token: str) -> ServiceAccountToken | None:
    """Return the claims of a JSON Web Token of Kubernetes, None for other text."""
    try:
        body = token.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
        account = claims["kubernetes.io"]["serviceaccount"]
        return ServiceAccountToken(str(claims["sub"]), str(account["uid"]), float(claims["iat"]), float(claims["exp"]))
    except (LookupError, TypeError, ValueError, binascii.Error, RecursionError):
        return None


def request_token(client: Client, account: str, namespace: str, seconds: int) -> str:
    """Return a new token of an account (TokenRequest)."""
    path = client.resource(_ACCOUNT).path(namespace, account, "token")
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": seconds}}
    what = f"token of ServiceAccount {namespace}/{account}"
    try:
        # The request may be repeated: a token whose answer was lost is not used.
        answer = post_review(client, what, path, body)
        return kubeconfig.register_secret(str(answer["status"]["token"]))
    except (LookupError, TypeError, ValueError):
        raise MusterError(f"{what}: the API server returned no token", "Check its version: 1.24 or newer") from None


def _file_path(options: Mapping[str, t.Any], namespace: str) -> pathlib.Path:
    if not options.get("path"):
        home = StateHome(options["state_home"], options["cluster"])
        return home.folder / "teams" / f"{namespace}.kubeconfig"
    path = pathlib.Path(str(options["path"])).expanduser()
    if not path.is_absolute():
        raise InputError("path", f"{path} is not absolute", "Begin it with / or ~")
    return path


def _read_wanted(
    options: Mapping[str, t.Any], base: pathlib.Path, account: str, namespace: str
) -> dict[str, object] | None:
    """Return the kubeconfig that would be written, None where no connection is named any more."""
    try:
        return build_document(kubeconfig.load_access(select_connection(options, base)), account, namespace)
    except MusterError:
        return None


def _require_own_file(path: pathlib.Path, wanted: dict[str, object] | None) -> None:
    """Refuse to replace or delete the kubeconfig of another cluster: its team would find a token of this one."""
    there, here = _read_authority(_load(path)), _read_authority(wanted)
    if there and here and there != here:
        raise RefusedError(
            f"{path} is of another cluster (its certificate authority differs)",
            "Give the kubeconfig of that cluster, or another muster_cluster for this one. If that cluster is gone, or "
            "has a new certificate authority, delete the file",
        )


def _load(path: pathlib.Path) -> t.Any:
    try:
        return yaml.safe_load(path.read_text())
    except (OSError, ValueError, yaml.YAMLError):
        return None


def _read_authority(document: t.Any) -> str:
    """Return the certificate authority in a kubeconfig, empty where it has none."""
    try:
        return str(document["clusters"][0]["cluster"]["certificate-authority-data"])
    except (LookupError, TypeError):
        return ""


def _read_saved_token(path: pathlib.Path, wanted: dict[str, object]) -> str:
    """Return the token of the file, empty when the file is missing, is another one or can be read by others."""
    try:
        if path.stat().st_mode & 0o777 != _MODE:
            return ""
        content = _load(path)
        token = str(content["users"][0]["user"]["token"])
    except (OSError, LookupError, TypeError):
        return ""
    return kubeconfig.register_secret(token) if content == with_token(wanted, token) else ""


def _write(path: pathlib.Path, value: dict[str, object]) -> None:
    try:
        files.private_dir(path.parent)
        files.write_atomic(path, yaml.safe_dump(value, sort_keys=False).encode(), _MODE)
    except OSError as exc:
        problem = f"{path} cannot be written: {(exc.strerror or str(exc)).lower()}"
        raise RefusedError(problem, "Set path to another file") from exc
