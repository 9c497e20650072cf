# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The credentials of a service, read on the controller from where its ``secret_ref`` points.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import os
import pathlib
import typing as t

from ....module_utils._model.binding import Binding, SecretPointer
from ....module_utils._model.errors import InputError
from ....module_utils._secrets.secret import Secret
from ....module_utils._secrets.sources import SecretSource
from ..._services import s3_addresses, vault

# What the service calls a value -> the name under which it is looked for where the user names none.
_NAMES: t.Final = {
    "access_key": "AWS_ACCESS_KEY_ID",
    "secret_key": "AWS_SECRET_ACCESS_KEY",
    "session_token": "AWS_SESSION_TOKEN",
    "token": "VAULT_TOKEN",
}
_OPTIONAL: t.Final = ("session_token",)
_S3: t.Final = ("access_key", "secret_key", "session_token")
_LARGEST = 1 << 16


def read_s3_keys(pointer: SecretPointer | None, option: str) -> s3_addresses.S3Keys:
    """Return the keys of an object store. Without a pointer they are in the environment, under AWS' own names.

    :raises InputError: naming what is missing; never a value.
    """
    values = read_values(pointer or SecretPointer("env"), _S3, option)
    return s3_addresses.S3Keys(values["access_key"], values["secret_key"], values.get("session_token"))


def open_signer(binding: Binding, option: str) -> s3_addresses.S3Signer:
    """Return what signs requests to the store of a binding."""
    return s3_addresses.S3Signer(binding, read_s3_keys(binding.secret_ref, option))


def read_values(pointer: SecretPointer, wanted: t.Sequence[str], option: str) -> dict[str, Secret]:
    """Return the values of ``wanted`` that are where ``pointer`` says."""
    names = {key: pointer.keys.get(key) or _NAMES[key] for key in wanted}
    if pointer.source == "env":
        found = {key: os.environ.get(name, "") for key, name in names.items()}
    else:
        listed = _read_listed(pointer, option)
        # Names that the user did not choose may be written in small letters, as AWS' own file has them.
        found = {key: listed.get(name) or listed.get(name.lower()) or "" for key, name in names.items()}
    values = {key: Secret(value, f"{option}.secret_ref ({names[key]})") for key, value in found.items() if value}
    needed = [key for key in wanted if key in pointer.keys or key not in _OPTIONAL]
    missing = [names[key] for key in needed if key not in values]
    if missing:
        where = "the environment of ansible-playbook" if pointer.source == "env" else pointer.path
        fix = "Set it there, or say in secret_ref where it is"
        raise InputError(f"{option}.secret_ref", f"{' and '.join(missing)} is not in {where}", fix)
    return values


def _read_listed(pointer: SecretPointer, option: str) -> dict[str, str]:
    path = str(pointer.path)
    if pointer.source == "file":
        return _read_lines(path, option)
    found = vault.read_secret(vault_access(pointer.source, option), path, f"{option}.secret_ref")
    return {str(key): str(value) for key, value in found.items()}


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
