# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads and renews the credential of a user: tokens, token files and exec plugins."""

from __future__ import annotations

import base64
import datetime
import json
import os
import re
import subprocess
import threading
from collections.abc import Callable, Mapping

from ....module_utils._http.clock import SYSTEM_CLOCK, Clock
from ....module_utils._model.errors import InputError
from ....module_utils._secrets.scrubber import remember, scrub
from .kinds import parse_time
from .kubeconfig import ClusterAccess, KubeUser, read_text, register_secret

EXEC_VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
_EXEC_LIMIT_S = 60.0
# client-go reads a token file again after a minute; the kubelet renews it long before it expires.
_TOKEN_FILE_S = 60.0
# A credential is not used in its last seconds: it must still be good when the request arrives.
_MARGIN_S = 10.0


class Credential:
    """The ``Auth`` of the transport: headers, and a renewed credential once after a 401.

    ``new_certificate`` is called with the PEM text when an exec plugin returns another client certificate than the one
    in use. ``cluster`` goes to a plugin that asks for it (``provideClusterInfo``).
    """

    def __init__(self, user: KubeUser, clock: Clock = SYSTEM_CLOCK) -> None:
        self._user = user
        self._clock = clock
        self._lock = threading.Lock()
        self._token = user.token
        self._good_until = float("inf") if not user.token_file and user.exec is None else 0.0
        self.client_pem = user.client_pem
        self.new_certificate: Callable[[str], None] = lambda _pem: None
        self.cluster: Mapping[str, object] = {}

    def headers(self) -> Mapping[str, str]:
        """Return the headers for the next request; reads the file or runs the plugin when that is due."""
        with self._lock:
            if self._clock.time() >= self._good_until:
                self._renew()
            sent = dict(self._user.headers)
            if self._token:
                if not self._token.isprintable():
                    option = f"kubeconfig user {self._user.name} token"
                    raise InputError(option, "holds a line break or another control character", "Write it in one line")
                sent["Authorization"] = f"Bearer {self._token}"
            elif self._user.basic:
                pair = base64.b64encode(":".join(self._user.basic).encode()).decode()
                remember(pair)
                sent["Authorization"] = f"Basic {pair}"
            return sent

    def refresh(self) -> bool:
        """Read again after a 401; true when there is now another credential to try."""
        with self._lock:
            if not self._user.token_file and self._user.exec is None:
                return False
            before = (self._token, self.client_pem)
            self._renew()
            return (self._token, self.client_pem) != before

    def _renew(self) -> None:
        if self._user.token_file:
            self._token = register_secret(
                read_text(self._user.token_file, f"kubeconfig user {self._user.name} tokenFile").strip()
            )
            self._good_until = self._clock.time() + _TOKEN_FILE_S
        elif self._user.exec is not None:
            status = run_plugin(self._user, self.cluster)
            self._token = register_secret(str(status.get("token") or ""))
            self._good_until = _expiry_time(status) - _MARGIN_S
            certificate, key = status.get("clientCertificateData"), status.get("clientKeyData")
            if certificate and key:
                pem = f"{str(certificate).rstrip()}\n{register_secret(str(key))}"
                if pem != self.client_pem:
                    self.client_pem = pem
                    self.new_certificate(pem)


def run_plugin(user: KubeUser, cluster: Mapping[str, object]) -> Mapping[str, object]:
    """Run a user's exec plugin and return the ``status`` of the ExecCredential it prints."""
    plugin = user.exec or {}
    option = f"kubeconfig user {user.name} exec"
    version = str(plugin.get("apiVersion") or "")
    if version not in EXEC_VERSIONS:
        raise InputError(option, f"apiVersion {version or '(none)'} is not supported", f"Use {EXEC_VERSIONS[0]}")
    if plugin.get("interactiveMode") == "Always":
        raise InputError(option, "is interactive (interactiveMode Always), which does not work in a play")
    command = str(plugin.get("command") or "")
    if not command:
        raise InputError(option, "names no command")
    if "/" in command and not os.path.isabs(command):
        command = os.path.join(user.exec_folder, command)
    spec: dict[str, object] = {"interactive": False}
    if plugin.get("provideClusterInfo"):
        spec["cluster"] = dict(cluster)
    information = {"apiVersion": version, "kind": "ExecCredential", "spec": spec}
    environment = dict(os.environ) | {"KUBERNETES_EXEC_INFO": json.dumps(information)}
    for entry in _list(plugin, "env", option):
        if not isinstance(entry, Mapping):
            raise InputError(option, "each entry of env must have name and value")
        environment[str(entry.get("name"))] = register_secret(str(entry.get("value") or ""))
    arguments = [command, *(str(item) for item in _list(plugin, "args", option))]
    return _parse_status(
        _run_command(arguments, environment, option, str(plugin.get("installHint") or "")), version, option
    )


def _list(plugin: Mapping[str, object], key: str, option: str) -> list[object]:
    value = plugin.get(key) or []
    if not isinstance(value, list):
        raise InputError(option, f"{key} must be a list")
    return value


def _run_command(arguments: list[str], environment: Mapping[str, str], option: str, hint: str) -> bytes:
    name = os.path.basename(arguments[0])
    advice = re.sub(r"\s+", " ", hint).strip()[:200]
    try:
        completed = subprocess.run(
            arguments,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_EXEC_LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise InputError(option, f"{name} returned no credential within {_EXEC_LIMIT_S:g} s") from None
    except OSError as exc:
        reason = (exc.strerror or "failed").lower()
        raise InputError(option, f"{name} cannot be run ({reason})", advice or f"Install {name}") from None
    if completed.returncode != 0:
        # A credential goes to standard output, which is not shown; why there is none, to standard error.
        lines = scrub(completed.stderr.decode(errors="replace")).strip().splitlines()
        said = f": {''.join(filter(str.isprintable, lines[-1]))[:200]}" if lines else ""
        reason = f"{name} exited with status {completed.returncode}{said}"
        raise InputError(option, reason, "Run it by hand, or log in again")
    return completed.stdout


def _parse_status(output: bytes, version: str, option: str) -> Mapping[str, object]:
    try:
        answer = json.loads(output)
    except ValueError:
        raise InputError(option, "printed no ExecCredential (not JSON)") from None
    status = answer.get("status") if isinstance(answer, dict) else None
    if not isinstance(status, dict) or answer.get("kind") != "ExecCredential":
        raise InputError(option, "printed no ExecCredential with a status")
    if answer.get("apiVersion") != version:
        raise InputError(option, f"printed an ExecCredential of another version than {version}")
    if not status.get("token") and not status.get("clientCertificateData"):
        raise InputError(option, "printed an ExecCredential without token or certificate")
    return status


def _expiry_time(status: Mapping[str, object]) -> float:
    """Return when a credential expires as seconds since 1970; without a date it is used until it is rejected."""
    text = status.get("expirationTimestamp")
    return (parse_time(text) or 0.0) if text else float("inf")


def certificate_end(pem: str) -> datetime.datetime | None:
    """Return when the first certificate in ``pem`` expires, None where that cannot be read."""
    match = re.search(r"-----BEGIN CERTIFICATE-----([^-]+)-----END", pem)
    try:
        der = base64.b64decode(match.group(1)) if match else b""
    except ValueError:
        return None
    # Validity is the one sequence of two times (RFC 5280 section 4.1): UTCTime of 13 or GeneralizedTime of 15 bytes.
    one = rb"(?:\x17\x0d[0-9]{12}Z|\x18\x0f[0-9]{14}Z)"
    validity = re.search(rb"\x30[\x1e\x20\x22]" + one + rb"(" + one + rb")", der)
    if validity is None:
        return None
    text = validity.group(1)[2:-1].decode()
    form = "%y%m%d%H%M%S" if len(text) == 12 else "%Y%m%d%H%M%S"
    return datetime.datetime.strptime(text, form).replace(tzinfo=datetime.UTC)


def describe_rejection(access: ClusterAccess) -> str:
    """Return which credential was rejected, and whether it has expired."""
    context = f" of context {access.context}" if access.context else ""
    end = certificate_end(access.user.client_pem)
    if end is not None and end < datetime.datetime.now(datetime.UTC):
        return f"the client certificate of user {access.user.name}{context} expired on {end:%Y-%m-%d %H:%M} UTC"
    return f"the credential of user {access.user.name or '(none)'}{context} ({access.source}) was rejected"
