# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Resolving a job's secret_refs on the controller: from its environment or from a file.

Those that are in the cluster already stay there: pods name them, and no value of theirs comes to the controller.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import os
import pathlib

from ....module_utils._model.errors import InputError
from ....module_utils._model.job import Job, SecretRef
from ....module_utils._secrets.scrubber import remember

# Ansible masks every occurrence of a registered secret; a short one would mask half the output and hide nothing.
MIN_LENGTH = 8


def resolve_secrets(job: Job) -> tuple[dict[str, str], dict[str, bytes]]:
    """Return (variables, files) by name.

    :raises InputError: when a secret is empty, or has less than eight characters. Values are never shown.
    """
    env: dict[str, str] = {}
    files: dict[str, bytes] = {}
    for ref in job.secret_refs:
        if ref.source == "kubernetes":
            continue
        value = _read(ref)
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


def _read(ref: SecretRef) -> bytes:
    if ref.source == "env":
        return os.environ.get(ref.key or ref.name, "").encode()
    if not ref.path:
        raise InputError(f"job.secret_refs.{ref.name}.path", "is required with from: file")
    try:
        return pathlib.Path(ref.path).expanduser().read_bytes().removesuffix(b"\n")
    except OSError as exc:
        raise InputError(f"job.secret_refs.{ref.name}", f"cannot read {ref.path}: {exc.strerror}") from exc


def _fix_of(ref: SecretRef) -> str:
    if ref.source == "env":
        return f"Set the environment variable {ref.key or ref.name} for ansible-playbook"
    return f"Write the secret to {ref.path}"
