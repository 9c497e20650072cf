# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Resolving a job's secret_refs on the controller: from its environment, a file, or a service that holds secrets.

Those that are in the cluster of the job already stay there: pods name them, and no value comes to the controller.
Credentials that are made for their reader are made by ``leases``, when the run starts.
"""

from __future__ import annotations

import base64
import dataclasses
import json
import os
import pathlib
import typing as t

from .....module_utils._model.binding import SECRET_PROVIDERS, Binding
from .....module_utils._model.errors import InputError
from .....module_utils._model.job import Job, SecretRef
from .....module_utils._model.job_backends import IN_CLUSTER
from .....module_utils._secrets.scrubber import remember
from ...._services import vault
from ...shared import bindings, credentials
from ...shared.state_dir import StateHome

# Ansible masks every occurrence of a registered secret; a short one would mask half the output and hide nothing.
MIN_LENGTH = 8
# Where Docker's own registry keeps its credential in a configuration file.
_DOCKER_HUB: t.Final = "https://index.docker.io/v1/"


@dataclasses.dataclass(frozen=True, slots=True)
class JobSecrets:
    """The values of a job: variables, files and registry configurations, by name; ``leased`` are made at the start.

    ``image`` is the job's; ``shown`` are the options that records and process lists show, with their texts.
    """

    image: str = ""
    shown: tuple[tuple[str, str], ...] = dataclasses.field(default=(), repr=False)
    env: dict[str, str] = dataclasses.field(default_factory=dict, repr=False)
    files: dict[str, bytes] = dataclasses.field(default_factory=dict, repr=False)
    registries: dict[str, bytes] = dataclasses.field(default_factory=dict, repr=False)
    leased: tuple[SecretRef, ...] = ()

    @property
    def values(self) -> tuple[dict[str, str], dict[str, bytes]]:
        """What ranks get: variables and files."""
        return self.env, self.files


def resolve_secrets(
    job: Job, home: StateHome | None = None, open_cluster: credentials.OpenCluster | None = None
) -> JobSecrets:
    """Return the values of a job; those that are made for it are only asked about.

    :param home: where the bindings are that secrets name.
    :param open_cluster: the cluster whose Secrets a job on plain hosts reads.
    :raises InputError: when a secret is empty, has less than eight characters, or stands in the job itself. Values are
        never shown.
    """
    found = JobSecrets(str(job.image), _list_shown(job))
    for ref in job.secret_refs:
        if ref.source in IN_CLUSTER and job.on_kubernetes:
            continue
        if is_leased(ref, home):
            option = f"job.secret_refs.{ref.name}"
            vault.require_issue(open_vault(ref, home), str(ref.path), option)
            found = dataclasses.replace(found, leased=(*found.leased, ref))
        else:
            found = add_value(found, ref, _read(ref, home, open_cluster))
    return found


def add_value(found: JobSecrets, ref: SecretRef, value: bytes) -> JobSecrets:
    """Return the secrets with the value of one more. Raises as :func:`resolve_secrets`."""
    option = f"job.secret_refs.{ref.name}"
    if not value:
        raise InputError(option, "is empty", _fix_of(ref))
    if len(value) < MIN_LENGTH:
        raise InputError(
            option,
            f"is shorter than {MIN_LENGTH} characters",
            "Set a longer one: a short secret cannot be masked in output",
        )
    text = value.decode(errors="replace")
    # From here on no message, log or record of this process shows it.
    remember(text)
    _refuse_plain(found.shown, ref.name, text)
    if ref.deliver == "registry":
        config = build_registry_config(value, found.image, option)
        return dataclasses.replace(found, registries={**found.registries, ref.name: config})
    if ref.deliver == "file":
        return dataclasses.replace(found, files={**found.files, ref.name: value})
    if value != text.encode(errors="replace"):
        raise InputError(option, "is not text", "Set as: file to deliver it as a file")
    if "\0" in text:
        raise InputError(option, "contains a NUL character", "Set as: file to deliver it as a file")
    return dataclasses.replace(found, env={**found.env, ref.name: text})


def build_registry_config(value: bytes, image: str, option: str) -> bytes:
    """Return the configuration file with which images are pulled, from such a file or from ``USER:PASSWORD``.

    :param image: its registry is the one that a user and a password are for.
    :raises InputError: when the value is neither.
    """
    try:
        given = json.loads(value)
    except ValueError:
        given = None
    if isinstance(given, dict) and isinstance(given.get("auths"), dict):
        for entry in given["auths"].values():
            _remember_auth(entry if isinstance(entry, dict) else {})
        return value
    user, colon, password = value.decode(errors="replace").strip().partition(":")
    if given is not None or not (user and colon and password) or "\n" in password:
        raise InputError(option, "is neither a configuration file with auths nor USER:PASSWORD")
    auth = base64.b64encode(f"{user}:{password}".encode()).decode()
    entry = {"username": user, "password": password, "auth": auth}
    _remember_auth(entry)
    return json.dumps({"auths": {registry_of(image): entry}}).encode()


def registry_of(image: str) -> str:
    """Return the key of an image's registry in a configuration file."""
    host, slash, _rest = image.partition("/")
    is_host = bool(slash) and ("." in host or ":" in host or host == "localhost")
    return host if is_host and host not in ("docker.io", "index.docker.io") else _DOCKER_HUB


def is_leased(ref: SecretRef, home: StateHome | None) -> bool:
    """Return whether a secret is made for its reader, and ends."""
    if ref.source not in ("vault", "openbao"):
        return False
    return vault.find_engine(open_vault(ref, home), str(ref.path), f"job.secret_refs.{ref.name}") in ("token", "leased")


def open_vault(ref: SecretRef, home: StateHome | None) -> vault.VaultAccess:
    """Return how the Vault or OpenBao of a secret is reached."""
    return credentials.vault_access(ref.source, f"job.secret_refs.{ref.name}", _load_binding(ref, home))


def pick_value(ref: SecretRef, found: t.Mapping[str, bytes]) -> bytes:
    """Return the value that a reference names.

    :raises InputError: naming the keys that there are.
    """
    # A token is the one value of what makes it.
    key = ref.key or (vault.TOKEN_KEY if ref.path and vault.is_token_maker(ref.path) else ref.name)
    if set(found) == {credentials.WHOLE}:
        if ref.key:
            raise InputError(f"job.secret_refs.{ref.name}.key", f"{ref.path} is one value without keys", "Leave it out")
        return found[credentials.WHOLE]
    if key not in found:
        there = f"It has: {', '.join(sorted(found))}" if found else "Check the name, and the path"
        raise InputError(f"job.secret_refs.{ref.name}.key", f"{ref.path} has no key '{key}'", there)
    return found[key]


def _remember_auth(entry: t.Mapping[str, t.Any]) -> None:
    for key in ("auth", "password", "identitytoken", "registrytoken"):
        if isinstance(entry.get(key), str) and len(entry[key]) >= MIN_LENGTH:
            remember(entry[key])


def _list_shown(job: Job) -> tuple[tuple[str, str], ...]:
    """Return the options of a job that records, process lists and logs show, with their texts."""
    env = [(f"job.env.{key}", text) for key, text in job.env.items()]
    return (*env, *(("job.args", text) for text in job.args), *(("job.command", text) for text in job.command))


def _refuse_plain(shown: t.Iterable[tuple[str, str]], name: str, value: str) -> None:
    """Refuse a job that holds a secret's value where it is shown."""
    for option, text in shown:
        if value in text:
            raise InputError(
                option,
                f"holds the value of the secret {name}",
                f"Leave it out: the program gets it from {name}, or from the file that {name}_FILE names",
            )


def _read(ref: SecretRef, home: StateHome | None, open_cluster: credentials.OpenCluster | None) -> bytes:
    if ref.source == "env":
        return os.environ.get(ref.key or ref.name, "").encode()
    option = f"job.secret_refs.{ref.name}"
    if not ref.path:
        raise InputError(f"{option}.path", f"is required with from: {ref.source}")
    if ref.source == "file":
        try:
            return pathlib.Path(ref.path).expanduser().read_bytes().removesuffix(b"\n")
        except OSError as exc:
            raise InputError(option, f"cannot read {ref.path}: {exc.strerror}") from exc
    place = credentials.SecretPlace(ref.source, ref.path, _load_binding(ref, home))
    return pick_value(ref, credentials.read_listed(place, [ref.key or ref.name], option, open_cluster))


def _load_binding(ref: SecretRef, home: StateHome | None) -> Binding | None:
    if not ref.binding or home is None:
        return None
    option = f"job.secret_refs.{ref.name}.binding"
    binding = bindings.load_binding(home, ref.binding, option)
    if binding.component != "secrets":
        raise InputError(option, f"'{ref.binding}' is a binding of {binding.component}, not of secrets")
    # Vault and OpenBao have one API.
    allowed = SECRET_PROVIDERS[:2] if binding.provider in (None, *SECRET_PROVIDERS[:2]) else (str(binding.provider),)
    if ref.source not in allowed:
        known = " or ".join(allowed)
        raise InputError(option, f"'{ref.binding}' is a binding of {known}, not of {ref.source}", f"Use from: {known}")
    return binding


def _fix_of(ref: SecretRef) -> str:
    if ref.source == "env":
        return f"Set the environment variable {ref.key or ref.name} for ansible-playbook"
    return f"Write the secret to {ref.path}" if ref.source == "file" else f"Set a value at {ref.path}"
