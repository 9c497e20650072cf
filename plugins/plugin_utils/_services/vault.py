# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Secrets in HashiCorp Vault and OpenBao: of key-value stores, and credentials that are made for one reader.

The latter have a lease, or are tokens: they end by themselves, can be renewed, and are revoked by who asked for them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import tempfile
import typing as t

from ...module_utils._model.errors import InputError, RefusedError
from ...module_utils._secrets.secret import Secret

_LIMIT_S = 20
# What makes a token, and what its value is called among the values of a secret.
_TOKEN_MAKERS: t.Final = ("auth/token/create", "auth/token/create-orphan")
TOKEN_KEY: t.Final = "token"
Engine = t.Literal["kv2", "kv1", "token", "leased"]


@dataclasses.dataclass(frozen=True, slots=True)
class VaultAccess:
    """How a store of secrets is reached: its address, a token, and its own CA where it has one."""

    address: str
    token: Secret
    ca: str | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class VaultLease:
    """What ends a credential that was made for one reader.

    ``id`` names a lease, or a token by its accessor: neither is a credential.
    """

    kind: t.Literal["lease", "token"]
    id: str
    lasts_s: float
    renewable: bool


def read_secret(access: VaultAccess, path: str, option: str) -> dict[str, t.Any]:
    """Return the keys and values at ``MOUNT/PATH`` of a key-value store; of version 2 the newest.

    :raises InputError: naming the path, when it is not there or the token may not read it.
    :raises RefusedError: when hvac is not installed, or the store is sealed or cannot be reached.
    """
    if "/" not in path.strip("/"):
        raise InputError(f"{option}.path", "must be MOUNT/PATH", "For example: secret/training/registry")
    with _open_client(access, option, path) as client:
        mount, engine = _find_engine(client, path)
        name = path.strip("/")[len(mount) :]
        if engine == "kv1":
            return dict(client.secrets.kv.v1.read_secret(name, mount_point=mount.rstrip("/"))["data"])
        read = client.secrets.kv.v2.read_secret_version
        answer = read(name, mount_point=mount.rstrip("/"), raise_on_deleted_version=True)
        return dict(answer["data"]["data"])


def find_engine(access: VaultAccess, path: str, option: str) -> Engine:
    """Return what is at a path: a key-value store, what makes tokens, or what makes other credentials with a lease."""
    with _open_client(access, option, path) as client:
        return _find_engine(client, path)[1]


def require_issue(access: VaultAccess, path: str, option: str) -> None:
    """Refuse a token that may not have a credential made at ``path``, without having one made.

    :raises InputError: naming the path.
    """
    makes_token = is_token_maker(path)
    with _open_client(access, option, path) as client:
        answer = client.sys.get_capabilities([path.strip("/")])
        found = {str(item) for item in answer.get("capabilities") or answer["data"]["capabilities"]}
    if not found & {"root", *(("update", "create", "sudo") if makes_token else ("read",))}:
        raise InputError(option, f"the token may not read {path} of {access.address}", "Allow it in a policy")


def issue(
    access: VaultAccess, path: str, option: str, meta: t.Mapping[str, str]
) -> tuple[dict[str, t.Any], VaultLease]:
    """Have a credential made, and return its values with what ends it.

    :param meta: notes on a token, which its accessor shows.
    """
    with _open_client(access, option, path) as client:
        if is_token_maker(path):
            made = client.adapter.post(f"/v1/{path.strip('/')}", json={"meta": dict(meta), "renewable": True})["auth"]
            token = Secret(str(made["client_token"]), option)
            lease = VaultLease("token", str(made["accessor"]), float(made["lease_duration"]), bool(made["renewable"]))
            return {TOKEN_KEY: token.reveal()}, lease
        answer = client.read(path.strip("/"))
    if not answer or not answer.get("lease_id"):
        raise RefusedError(f"{option}: {path} of {access.address} gives no credential with a lease", "Check the path")
    lease = VaultLease("lease", str(answer["lease_id"]), float(answer["lease_duration"]), bool(answer["renewable"]))
    return dict(answer["data"]), lease


def renew(access: VaultAccess, lease: VaultLease, option: str) -> float:
    """Extend a lease or a token, and return how many seconds it has from now on.

    :raises InputError: when it has ended already.
    :raises RefusedError: when the token may not renew it.
    """
    with _open_client(access, option, "sys/leases/renew") as client:
        if lease.kind == "token":
            return float(client.auth.token.renew_accessor(lease.id)["auth"]["lease_duration"])
        return float(client.sys.renew_lease(lease.id)["lease_duration"])


def renew_own(access: VaultAccess, option: str) -> float:
    """Extend the token that asks, and return how many seconds it has from now on; 0 where it cannot be extended."""
    with _open_client(access, option, "auth/token/renew-self") as client:
        own = client.auth.token.lookup_self()["data"]
        if not own.get("renewable"):
            return 0.0
        return float(client.auth.token.renew_self()["auth"]["lease_duration"])


def revoke(access: VaultAccess, lease: VaultLease, option: str) -> None:
    """End a lease or a token; one that has ended already counts as ended.

    :raises InputError: when the token may not end it.
    """
    path = "auth/token/revoke-accessor" if lease.kind == "token" else "sys/leases/revoke"
    with _open_client(access, option, path) as client, _ended_is_fine():
        if lease.kind == "token":
            client.auth.token.revoke_accessor(lease.id)
        else:
            client.sys.revoke_lease(lease.id)


def check_access(access: VaultAccess, option: str) -> None:
    """Refuse a store that is sealed or cannot be reached, or whose token is refused. Raises as :func:`read_secret`."""
    with _open_client(access, option, "auth/token/lookup-self") as client:
        client.auth.token.lookup_self()


def is_token_maker(path: str) -> bool:
    """Return whether writing to a path makes a token."""
    clean = path.strip("/")
    return clean in _TOKEN_MAKERS or clean.startswith(f"{_TOKEN_MAKERS[0]}/")


def _find_engine(client: t.Any, path: str) -> tuple[str, Engine]:
    """Return the mount of a path, with a slash, and what it is. A token that may not ask has a KV store, version 2."""
    clean = path.strip("/")
    if is_token_maker(clean):
        return "auth/token/", "token"
    guess = clean.partition("/")[0] + "/" if "/" in clean else clean
    try:
        found = client.adapter.get(f"/v1/sys/internal/ui/mounts/{clean}")["data"]
    except Exception as exc:
        if type(exc).__name__ not in ("Forbidden", "InvalidPath", "UnsupportedOperation"):
            raise
        return guess, "kv2"
    if found["type"] in ("kv", "generic"):
        return str(found["path"]), "kv2" if (found.get("options") or {}).get("version") == "2" else "kv1"
    return str(found["path"]), "leased"


@contextlib.contextmanager
def _ended_is_fine() -> t.Iterator[None]:
    try:
        yield
    except Exception as exc:
        # A token that has ended has no accessor any more, and a lease that has ended is unknown.
        if type(exc).__name__ not in ("InvalidRequest", "InvalidPath"):
            raise


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
        except (InputError, RefusedError):
            raise
        except requests.exceptions.RequestException as exc:
            kind = "its certificate is refused" if isinstance(exc, requests.exceptions.SSLError) else "no connection"
            raise RefusedError(f"{option}: {access.address}: {kind}", "Check the address, its CA and routes") from None
        except Exception as exc:
            raise _explain(exc, access, path, option) from None


def _explain(exc: Exception, access: VaultAccess, path: str, option: str) -> Exception:
    """Return the error for the user. hvac's own text may hold what was sent, so only its class is read."""
    kind = type(exc).__name__
    if kind in ("Forbidden", "Unauthorized") and "renew" in path:
        # Says nothing of what is to be renewed: that may be valid for long.
        return RefusedError(f"{option}: the token may not renew its lease at {access.address}", "Allow it in a policy")
    if kind == "Forbidden":
        return InputError(option, f"the token may not read {path} of {access.address}", "Allow it in a policy")
    if kind == "InvalidRequest" and "renew" in path:
        return InputError(option, f"its lease has ended, or is as long as {access.address} allows")
    if kind == "InvalidPath":
        return InputError(option, f"{path} does not exist in {access.address}", "Check mount and path")
    if kind in ("VaultDown", "VaultNotInitialized"):
        return RefusedError(f"{option}: {access.address} is sealed or not initialised", "Unseal it, then run again")
    if kind == "Unauthorized":
        return InputError(option, f"the token is refused by {access.address}", "Get a new token")
    return RefusedError(
        f"{option}: {access.address} gave no secret at {path} ({kind})", "Check its path, and what is mounted there"
    )
