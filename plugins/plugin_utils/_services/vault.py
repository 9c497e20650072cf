# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Secrets in HashiCorp Vault and OpenBao, read from their key-value store, version 2.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import contextlib
import dataclasses
import tempfile
import typing as t

from ...module_utils._model.errors import InputError, RefusedError
from ...module_utils._secrets.secret import Secret

_LIMIT_S = 20


@dataclasses.dataclass(frozen=True, slots=True)
class VaultAccess:
    """How a store of secrets is reached: its address, a token, and its own CA where it has one."""

    address: str
    token: Secret
    ca: str | None = None


def read_secret(access: VaultAccess, path: str, option: str) -> dict[str, t.Any]:
    """Return the keys and values at ``MOUNT/PATH``, of the newest version.

    :raises InputError: naming the path, when it is not there or the token may not read it.
    :raises RefusedError: when hvac is not installed, or the store is sealed or cannot be reached.
    """
    mount, _slash, name = path.strip("/").partition("/")
    if not name:
        raise InputError(f"{option}.path", "must be MOUNT/PATH", "For example: secret/training/registry")
    with _open_client(access, option, path) as client:
        answer = client.secrets.kv.v2.read_secret_version(name, mount_point=mount, raise_on_deleted_version=True)
        return dict(answer["data"]["data"])


def check_access(access: VaultAccess, option: str) -> None:
    """Refuse a store that is sealed or cannot be reached, or whose token is refused. Raises as :func:`read_secret`."""
    with _open_client(access, option, "auth/token/lookup-self") as client:
        client.auth.token.lookup_self()


@contextlib.contextmanager
def _open_client(access: VaultAccess, option: str, path: str) -> t.Iterator[t.Any]:
    try:
        import hvac
        import requests
    except ImportError as exc:
        raise RefusedError(
            "Vault and OpenBao need hvac on the controller",
            "Install it for the Python of ansible-playbook: pip install hvac",
        ) from exc
    with tempfile.NamedTemporaryFile("w", suffix=".pem") as authority:
        authority.write(access.ca or "")
        authority.flush()
        verify: t.Any = authority.name if access.ca else True
        try:
            client: t.Any = hvac.Client
            yield client(url=access.address, token=access.token.reveal(), verify=verify, timeout=_LIMIT_S)
        except requests.exceptions.RequestException as exc:
            kind = "its certificate is refused" if isinstance(exc, requests.exceptions.SSLError) else "no connection"
            raise RefusedError(f"{option}: {access.address}: {kind}", "Check the address, its CA and routes") from None
        except Exception as exc:
            raise _explain(exc, access, path, option) from None


def _explain(exc: Exception, access: VaultAccess, path: str, option: str) -> Exception:
    """Return the error for the user. hvac's own text may hold what was sent, so only its class is read."""
    kind = type(exc).__name__
    if kind == "Forbidden":
        return InputError(option, f"the token may not read {path} of {access.address}", "Allow it in a policy")
    if kind == "InvalidPath":
        return InputError(option, f"{path} does not exist in {access.address}", "Check mount and path")
    if kind in ("VaultDown", "VaultNotInitialized"):
        return RefusedError(f"{option}: {access.address} is sealed or not initialised", "Unseal it, then run again")
    if kind == "Unauthorized":
        return InputError(option, f"the token is refused by {access.address}", "Get a new token")
    return RefusedError(f"{option}: {access.address} gave no secret at {path} ({kind})", "Is it a KV store, version 2?")
