# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Resolving a job's secret_refs on the controller: from its environment, a file, Vault or OpenBao.

Those that are in the cluster already stay there: pods name them, and no value of theirs comes to the controller.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import os
import pathlib

from ....module_utils._model.errors import InputError
from ....module_utils._model.job import Job, SecretRef
from ....module_utils._secrets.scrubber import remember
from ..shared.state_dir import StateHome

# Ansible masks every occurrence of a registered secret; a short one would mask half the output and hide nothing.
MIN_LENGTH = 8


def resolve_secrets(job: Job, home: StateHome | None = None) -> tuple[dict[str, str], dict[str, bytes]]:
    """Return (variables, files) by name.

    :param home: where the bindings are that secrets name.
    :raises InputError: when a secret is empty, has less than eight characters, or stands in the job itself. Values are
        never shown.
    """
    env, files = _resolve(job, home)
    values = {name: value.encode() for name, value in env.items()} | files
    for name, value in values.items():
        _refuse_plain(job, name, value.decode(errors="replace"))
    return env, files


def _refuse_plain(job: Job, name: str, value: str) -> None:
    """Refuse a job that holds a secret's value where records, process lists and logs show it."""
    plain = [(f"job.env.{key}", text) for key, text in job.env.items()]
    plain += [(f"job.{key}", text) for key in ("args", "command") for text in getattr(job, key)]
    for option, text in plain:
        if value in text:
            raise InputError(
                option,
                f"holds the value of the secret {name}",
                f"Leave it out: the program gets it from {name}, or from the file that {name}_FILE names",
            )


def _resolve(job: Job, home: StateHome | None) -> tuple[dict[str, str], dict[str, bytes]]:
    env: dict[str, str] = {}
    files: dict[str, bytes] = {}
    for ref in job.secret_refs:
        if ref.source == "kubernetes":
            continue
        value = _read(ref, home)
        option = f"job.secret_refs.{ref.name}"
        if not value:
            raise InputError(option, "is empty", _fix_of(ref))
        if len(value) < MIN_LENGTH:
            raise InputError(
                option,
                f"is shorter than {MIN_LENGTH} characters",
                "Set a longer one: a short secret cannot be masked in output",
            )
        # From here on no message, log or record of this process shows it.
        remember(value.decode(errors="replace"))
        if ref.deliver == "file":
            files[ref.name] = value
            continue
        try:
            env[ref.name] = value.decode()
        except UnicodeDecodeError as exc:
            raise InputError(option, "is not text", "Set as: file to deliver it as a file") from exc
        if "\0" in env[ref.name]:
            raise InputError(option, "contains a NUL character", "Set as: file to deliver it as a file")
    return env, files


def _read(ref: SecretRef, home: StateHome | None) -> bytes:
    if ref.source == "env":
        return os.environ.get(ref.key or ref.name, "").encode()
    if not ref.path:
        raise InputError(f"job.secret_refs.{ref.name}.path", f"is required with from: {ref.source}")
    if ref.source in ("vault", "openbao"):
        return _read_vault(ref, ref.path, home)
    try:
        return pathlib.Path(ref.path).expanduser().read_bytes().removesuffix(b"\n")
    except OSError as exc:
        raise InputError(f"job.secret_refs.{ref.name}", f"cannot read {ref.path}: {exc.strerror}") from exc


def _read_vault(ref: SecretRef, path: str, home: StateHome | None) -> bytes:
    # Late: a job without such secrets need not wait for their clients.
    from ..._services import vault
    from ..shared import bindings, credentials

    option = f"job.secret_refs.{ref.name}"
    binding = None
    if ref.binding and home is not None:
        binding = bindings.load_binding(home, ref.binding, f"{option}.binding")
        if binding.component != "secrets":
            raise InputError(
                f"{option}.binding", f"'{ref.binding}' is a binding of {binding.component}, not of secrets"
            )
    found = vault.read_secret(credentials.vault_access(ref.source, option, binding), path, option)
    key = ref.key or ref.name
    if key not in found:
        raise InputError(f"{option}.key", f"{path} has no key '{key}'", f"It has: {', '.join(sorted(found)) or 'none'}")
    return str(found[key]).encode()


def _fix_of(ref: SecretRef) -> str:
    if ref.source == "env":
        return f"Set the environment variable {ref.key or ref.name} for ansible-playbook"
    return f"Write the secret to {ref.path}" if ref.source == "file" else f"Set a value at {ref.path}"
