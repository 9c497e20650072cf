# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The credentials of a service, read on the controller from where its ``secret_ref`` points."""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import os
import pathlib
import re
import typing as t

from ....module_utils._model import juicefs_volume
from ....module_utils._model.binding import Binding, SecretPointer
from ....module_utils._model.errors import InputError
from ....module_utils._secrets.secret import Secret
from ....module_utils._secrets.sources import SecretSource
from ..._services import aws_secrets, s3_addresses, vault
from ..._services.tracking import trackers

if t.TYPE_CHECKING:
    from ..._kube.api.client import Client
    from ..._services import infisical
    from ..._services.registry.client import RegistryAccess

OpenCluster = t.Callable[[], "Client"]
# What the service calls a value -> the name under which it is looked for where the user names none.
_NAMES: t.Final = {
    "access_key": "AWS_ACCESS_KEY_ID",
    "secret_key": "AWS_SECRET_ACCESS_KEY",
    "session_token": "AWS_SESSION_TOKEN",
    "token": "VAULT_TOKEN",
    "client_id": "INFISICAL_UNIVERSAL_AUTH_CLIENT_ID",
    "client_secret": "INFISICAL_UNIVERSAL_AUTH_CLIENT_SECRET",
}
_OPTIONAL: t.Final = ("session_token",)
_S3: t.Final = ("access_key", "secret_key", "session_token")
_IDENTITY: t.Final = ("client_id", "client_secret")
_LOGIN: t.Final = ("username", "password")
_REGISTRY_NAMES: t.Final = {"username": "REGISTRY_USERNAME", "password": "REGISTRY_PASSWORD"}
_MONITORING_NAMES: t.Final = {
    "token": "PROMETHEUS_TOKEN",
    "username": "PROMETHEUS_USERNAME",
    "password": "PROMETHEUS_PASSWORD",
}
_SOURCE_NAMES: t.Final = {
    "token": "CATALOGUE_TOKEN",
    "username": "CATALOGUE_USERNAME",
    "password": "CATALOGUE_PASSWORD",
}
# As files of systemd take it without quotes.
_DATABASE: t.Final = re.compile(r"postgresql(\+psycopg2)?://[^\s\"'\\]+\Z")
_DATABASE_FORM: t.Final = "postgresql://USER:PASSWORD@HOST/NAME, with other signs than letters and digits as %XX"
# What the one value of a secret without keys is called.
WHOLE: t.Final = ""
_LARGEST = 1 << 16


@dataclasses.dataclass(frozen=True, slots=True)
class SecretPlace:
    """Where secrets are: the kind of service, the path in it, and which service, None for that of the environment."""

    source: str
    path: str
    binding: Binding | None = None


def read_s3_keys(
    pointer: SecretPointer | None, option: str, open_cluster: OpenCluster | None = None
) -> s3_addresses.S3Keys:
    """Return the keys of an object store. Without a pointer they are in the environment, under AWS' own names.

    :param open_cluster: as in :func:`read_listed`.
    :raises InputError: naming what is missing; never a value.
    """
    values = read_values(pointer or SecretPointer("env"), _S3, option, open_cluster)
    return s3_addresses.S3Keys(values["access_key"], values["secret_key"], values.get("session_token"))


def read_tracker_keys(binding: Binding, option: str, open_cluster: OpenCluster | None = None) -> dict[str, str]:
    """Return the credentials of a tracker by what it calls them, none where nothing says that it asks for any.

    All but a user's name are known to the scrubber.

    :raises InputError: naming what is missing; never a value.
    """
    tracker = trackers.tracker_of(binding)
    return _read_login(binding.secret_ref, tracker.sets, tracker.names, option, open_cluster)


def read_monitoring_keys(binding: Binding, option: str, open_cluster: OpenCluster | None = None) -> dict[str, str]:
    """Return the credentials of a Prometheus as :func:`read_tracker_keys` does: a token, or a user and a password."""
    return _read_login(binding.secret_ref, (("token",), _LOGIN), _MONITORING_NAMES, option, open_cluster)


def open_registry(binding: Binding, option: str, open_cluster: OpenCluster | None = None) -> RegistryAccess:
    """Return how a registry is reached, with the user that its ``secret_ref`` points to.

    :raises InputError: naming what is missing; never a value.
    """
    from ..._services.registry.client import RegistryAccess

    keys = _read_login(binding.secret_ref, (_LOGIN,), _REGISTRY_NAMES, option, open_cluster)
    password = Secret(keys["password"], f"{option}.secret_ref") if keys else None
    return RegistryAccess(binding.endpoint, binding.ca, keys.get("username", ""), password)


def read_database(pointer: SecretPointer, option: str, open_cluster: OpenCluster | None = None) -> Secret:
    """Return the address of a tracker's database, which has its password.

    :raises InputError: naming what is missing; never the address.
    """
    name, address = _read_address(pointer, option, "MLFLOW_DATABASE_URL", _DATABASE_FORM, open_cluster)
    if not _DATABASE.match(address.reveal()):
        raise InputError(option, f"{name} is not the address of a PostgreSQL", f"Write {_DATABASE_FORM}")
    return address


def read_metadata(pointer: SecretPointer, option: str) -> tuple[str, Secret | None]:
    """Return the address of a volume's metadata without its password, and the password.

    :raises InputError: naming what is missing or wrong; never the address.
    """
    name, address = _read_address(pointer, option, juicefs_volume.VARIABLE, juicefs_volume.ADDRESS_FORM, None)
    shown, password = juicefs_volume.split_address(address.reveal(), f"{option} ({name})")
    return shown, Secret(password, f"{option} ({name})") if password else None


def _read_address(
    pointer: SecretPointer, option: str, own_name: str, form: str, open_cluster: OpenCluster | None
) -> tuple[str, Secret]:
    """Return what the variable with an address is called, and the address, which has a password."""
    name = pointer.keys.get("url") or own_name
    text = _find_values(pointer, [name], option, open_cluster)[name]
    if not text:
        where = "the environment of ansible-playbook" if pointer.source == "env" else pointer.path
        raise InputError(option, f"{name} is not in {where}", f"Set it there: {form}")
    return name, Secret(text, f"{option} ({name})")


def read_webhook(
    pointer: SecretPointer, option: str, open_cluster: OpenCluster | None = None
) -> tuple[Secret, Secret | None]:
    """Return the address that gets alerts, which often has a token in it, and the token that is sent with them.

    :raises InputError: naming what is missing; never the address.
    """
    name, other = pointer.keys.get("url") or "ALERT_WEBHOOK_URL", pointer.keys.get("token") or "ALERT_WEBHOOK_TOKEN"
    found = _find_values(pointer, [name, other], option, open_cluster)
    if not found[name]:
        where = "the environment of ansible-playbook" if pointer.source == "env" else pointer.path
        raise InputError(option, f"{name} is not in {where}", "Set it there: https://HOST/PATH")
    token = Secret(found[other], f"{option} ({other})") if found[other] else None
    return Secret(found[name], f"{option} ({name})"), token


def read_source_login(
    pointer: SecretPointer | None, option: str, open_cluster: OpenCluster | None = None
) -> dict[str, str]:
    """Return the credentials of a source of templates: a token, or a user and a password; none without a pointer.

    Raises as :func:`read_tracker_keys`.
    """
    return _read_login(pointer, (("token",), _LOGIN), _SOURCE_NAMES, option, open_cluster)


def _read_login(
    pointer: SecretPointer | None,
    sets: t.Sequence[tuple[str, ...]],
    own_names: t.Mapping[str, str],
    option: str,
    open_cluster: OpenCluster | None,
) -> dict[str, str]:
    """Return the first of the sets of values that is there; none without a pointer."""
    if pointer is None:
        return {}
    named = [wanted for wanted in sets if set(wanted) & set(pointer.keys)]
    *others, last = named or sets

    def read(wanted: t.Sequence[str]) -> dict[str, str]:
        secret = [name for name in wanted if name != "username"]
        values = read_values(pointer, secret, option, open_cluster, own_names)
        found = {name: value.reveal() for name, value in values.items()}
        if len(secret) < len(wanted):
            user = pointer.keys.get("username") or own_names["username"]
            found["username"] = _find_values(pointer, [user], option, open_cluster)[user]
            if not found["username"]:
                raise InputError(f"{option}.secret_ref", f"{user} is not there", "Set it beside the password")
        return found

    for wanted in others:
        with contextlib.suppress(InputError):
            return read(wanted)
    return read(last)


def open_signer(binding: Binding, option: str, open_cluster: OpenCluster | None = None) -> s3_addresses.S3Signer:
    """Return what signs requests to the store of a binding."""
    return s3_addresses.S3Signer(binding, read_s3_keys(binding.secret_ref, option, open_cluster))


def read_values(
    pointer: SecretPointer,
    wanted: t.Sequence[str],
    option: str,
    open_cluster: OpenCluster | None = None,
    own_names: t.Mapping[str, str] | None = None,
) -> dict[str, Secret]:
    """Return the values of ``wanted`` that are where ``pointer`` says.

    :param own_names: the names of a kind of service, which hold where the pointer says none.
    """
    names = {key: pointer.keys.get(key) or (own_names or _NAMES)[key] for key in wanted}
    found = _find_values(pointer, list(names.values()), option, open_cluster)
    values = {key: Secret(found[name], f"{option}.secret_ref ({name})") for key, name in names.items() if found[name]}
    needed = [key for key in wanted if key in pointer.keys or key not in _OPTIONAL]
    missing = [names[key] for key in needed if key not in values]
    if missing:
        where = "the environment of ansible-playbook" if pointer.source == "env" else pointer.path
        fix = "Set it there, or say in secret_ref where it is"
        raise InputError(f"{option}.secret_ref", f"{' and '.join(missing)} is not in {where}", fix)
    return values


def _find_values(
    pointer: SecretPointer, names: t.Sequence[str], option: str, open_cluster: OpenCluster | None
) -> dict[str, str]:
    """Return what is under each of the names where a pointer says, empty for what is not there."""
    if pointer.source == "env":
        return {name: os.environ.get(name, "") for name in names}
    # Names that the user did not choose may be written in small letters, as AWS' own file has them.
    spelled = [spelling for name in names for spelling in (name, name.lower())]
    place = SecretPlace(pointer.source, str(pointer.path))
    if pointer.source == "file":
        listed = _read_lines(place.path, option)
    else:
        values = read_listed(place, spelled, option, open_cluster)
        listed = {key: value.decode() for key, value in values.items()}
    return {name: listed.get(name) or listed.get(name.lower()) or "" for name in names}


def read_listed(
    place: SecretPlace, names: t.Collection[str], option: str, open_cluster: OpenCluster | None = None
) -> dict[str, bytes]:
    """Return the values of a service of secrets at a path: those of ``names``, and others where it gives all at once.

    :param open_cluster: the cluster whose Secrets are read; None for that of the environment's kubeconfig.
    """
    if place.source == "kubernetes":
        return _read_cluster(place.path, option, open_cluster or _open_default_cluster)
    if place.source == "aws_secrets_manager":
        answer = aws_secrets.read_values(aws_access(option, place.binding), place.path, option)
        return answer if isinstance(answer, dict) else {WHOLE: answer}
    if place.source == "infisical":
        # Late, here and below: it needs the HTTP client and so OpenSSL, for which every other run would wait.
        from ..._services import infisical

        return infisical.read_values(infisical_access(option, place.binding), place.path, names, option)
    found = vault.read_secret(vault_access(place.source, option, place.binding), place.path, option)
    return {str(key): str(value).encode() for key, value in found.items()}


def check_secrets(binding: Binding, option: str) -> None:
    """Refuse a service of secrets that cannot be used with its credentials. Raises as :func:`read_listed`."""
    if binding.provider == "aws_secrets_manager":
        aws_secrets.check_access(aws_access(option, binding), option)
    elif binding.provider == "infisical":
        from ..._services import infisical

        infisical.check_access(infisical_access(option, binding), option)
    else:
        vault.check_access(vault_access(binding.provider or "openbao", option, binding), option)


def vault_access(source: str, option: str, binding: Binding | None = None) -> vault.VaultAccess:
    """Return how Vault or OpenBao is reached: as a binding says, else as their own tools' variables say."""
    own = ("BAO_ADDR", "VAULT_ADDR") if source == "openbao" else ("VAULT_ADDR",)
    tokens = ("BAO_TOKEN", "VAULT_TOKEN") if source == "openbao" else ("VAULT_TOKEN",)
    if binding is not None and binding.secret_ref is not None:
        token = read_values(binding.secret_ref, ("token",), option)["token"]
        return vault.VaultAccess(binding.endpoint, token, binding.ca)
    address = binding.endpoint if binding else next((os.environ[name] for name in own if os.environ.get(name)), "")
    if not address:
        raise InputError(option, f"{source} has no address", f"Set {own[0]}, or bind it in muster_services")
    source_of_token = SecretSource(option, variables=tokens)
    file = pathlib.Path("~/.vault-token").expanduser()
    token = source_of_token.find() or source_of_token.need(file=str(file) if file.is_file() else None)
    return vault.VaultAccess(address, token, binding.ca if binding else None)


def aws_access(option: str, binding: Binding | None = None) -> aws_secrets.AwsAccess:
    """Return how AWS Secrets Manager is asked: as a binding says, else by AWS' own variables and files."""
    if binding is None:
        return aws_secrets.AwsAccess(endpoint=os.environ.get("AWS_ENDPOINT_URL_SECRETS_MANAGER"))
    keys = read_s3_keys(binding.secret_ref, option) if binding.secret_ref else None
    return aws_secrets.AwsAccess(binding.region, binding.endpoint, binding.ca, keys)


def infisical_access(option: str, binding: Binding | None = None) -> infisical.InfisicalAccess:
    """Return how Infisical is asked: as a binding says, else as its own tool's variables say."""
    from ..._services import infisical

    address = binding.endpoint if binding else os.environ.get("INFISICAL_API_URL") or infisical.DEFAULT_ADDRESS
    address, ca = address.rstrip("/").removesuffix("/api"), binding.ca if binding else None
    pointer = binding.secret_ref if binding and binding.secret_ref else SecretPointer("env")
    token_name = pointer.keys.get("token") or "INFISICAL_TOKEN"
    if pointer.source == "env" and os.environ.get(token_name):
        return infisical.InfisicalAccess(address, token=Secret(os.environ[token_name], token_name, token=True), ca=ca)
    if "token" in pointer.keys:
        return infisical.InfisicalAccess(address, token=read_values(pointer, ("token",), option)["token"], ca=ca)
    values = read_values(pointer, _IDENTITY, option)
    return infisical.InfisicalAccess(address, values["client_id"], values["client_secret"], ca=ca)


def _open_default_cluster() -> Client:
    # Late: most credentials are in the environment, and need no client of a cluster.
    from . import kube_connection

    return kube_connection.open_client({}, pathlib.Path.cwd())


def _read_cluster(path: str, option: str, open_cluster: OpenCluster) -> dict[str, bytes]:
    """Return the values of a Secret of a cluster, ``SECRET`` or ``NAMESPACE/SECRET``."""
    namespace, _slash, name = path.rpartition("/")
    client = open_cluster()
    namespace = namespace or client.namespace
    live = client.get("v1/Secret", name, namespace)
    if live is None:
        fix = "Create it (muster.training.kube_secret), or name another"
        raise InputError(option, f"Secret {name} does not exist in the namespace {namespace}", fix)
    return {str(key): base64.b64decode(value) for key, value in (live.get("data") or {}).items()}


def _read_lines(path: str, option: str) -> dict[str, str]:
    """Return ``NAME = VALUE`` lines: variables, or AWS' credentials file with one profile."""
    try:
        with open(pathlib.Path(path).expanduser(), encoding="utf-8") as handle:
            lines = handle.read(_LARGEST).splitlines()
    except (OSError, UnicodeDecodeError) as exc:
        reason = getattr(exc, "strerror", None) or "not UTF-8 text"
        raise InputError(f"{option}.secret_ref.path", f"cannot read {path}: {reason}") from None
    pairs = [line.partition("=") for line in lines if "=" in line and not line.lstrip().startswith(("#", ";", "["))]
    found = {name.strip().removeprefix("export "): value.strip().strip("\"'") for name, _equals, value in pairs}
    if len(found) < len(pairs):
        raise InputError(
            f"{option}.secret_ref.path", f"{path} has a name twice", "Write one set of credentials into it"
        )
    return found
