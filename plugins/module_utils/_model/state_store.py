# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a store of the controller's state must be able to do: conditional writes, on which locks and ledgers rest."""

from __future__ import annotations

import dataclasses
import typing as t

from . import validators as f
from .binding import SecretPointer
from .errors import InputError, MusterError


class StateConflictError(MusterError):
    """An item is not as the writer believed: another controller wrote, created or deleted it."""


@dataclasses.dataclass(frozen=True, slots=True)
class StoredItem:
    """An item as it was read. ``version`` names exactly this content; ``age_s`` is the time since it was written."""

    data: bytes
    version: str
    age_s: float


class StateStore(t.Protocol):
    """Items by name. Every write names the version that it replaces, so that of two writers one is refused.

    All methods raise MusterError when the store does not answer or refuses the credential.
    """

    @property
    def title(self) -> str:
        """Return the store's name for people."""

    def read(self, name: str) -> StoredItem | None:
        """Return an item, None when it does not exist."""

    def write(self, name: str, data: bytes, version: str | None) -> str:
        """Replace the item of this version, or create it (None); return the new version.

        :raises StateConflictError: when it is not of this version, or exists already.
        """

    def delete(self, name: str, version: str) -> None:
        """Delete the item if it is of this version; nothing happens when it is not."""


@dataclasses.dataclass(frozen=True, slots=True)
class S3Setting:
    """``muster_state.s3``; ``bucket`` is ``BUCKET`` or ``BUCKET/PREFIX``, ``ca`` certificates in PEM form."""

    endpoint: str = f.field(f.text)
    bucket: str = f.field(f.text)
    region: str | None = f.field(f.text, None)
    addressing: str = f.field(f.choice("path", "virtual"), "path")
    ca: str | None = f.field(f.pem, None)
    secret_ref: SecretPointer | None = f.field(f.section(SecretPointer), None)


@dataclasses.dataclass(frozen=True, slots=True)
class KubernetesSetting:
    """``muster_state.kubernetes``: the namespace that holds the state, and how its cluster is reached."""

    namespace: str = f.field(f.name(63))
    kubeconfig: str | None = f.field(f.text, None)
    context: str | None = f.field(f.text, None)


@dataclasses.dataclass(frozen=True, slots=True)
class StateSetting:
    """The variable ``muster_state``. ``path``: the state home, or the working copy of one that is in a store."""

    store: str = f.field(f.choice("local", "s3", "kubernetes"), "local")
    path: str | None = f.field(f.text, None)
    s3: S3Setting | None = f.field(f.section(S3Setting), None)
    kubernetes: KubernetesSetting | None = f.field(f.section(KubernetesSetting), None)

    @classmethod
    def from_dict(cls, value: t.Any, path: str = "muster_state") -> StateSetting:
        """Return the setting in ``value``; nothing is the local store.

        :raises InputError: also when the chosen store is not described, or another one is.
        """
        found = f.section(cls)(value or {}, path)
        for name in ("s3", "kubernetes"):
            if found.store == name and getattr(found, name) is None:
                needs = "endpoint and bucket" if name == "s3" else "namespace"
                raise InputError(f"{path}.{name}", f"is missing, and store is {name}", f"Give its {needs}")
            if found.store != name and getattr(found, name) is not None:
                raise InputError(f"{path}.{name}", f"is given, but store is {found.store}", f"Set store: {name}")
        return found
