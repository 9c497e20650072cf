# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Takes the archive of a control plane from its server, sealed before it is on a disk here, and brings one back."""

from __future__ import annotations

import base64
import binascii
import contextlib
import dataclasses
import hashlib
import os
import pathlib
import secrets
import shlex
import shutil
import time
import typing as t

from ....module_utils._model import control_backup as model
from ....module_utils._model import validators
from ....module_utils._model.binding import require_resource
from ....module_utils._model.errors import InputError, NodeError, RefusedError, one_line
from ....module_utils._model.timestamps import format_time
from ....module_utils._node import files, host_blobs
from ....module_utils._secrets.secret import Secret
from ....module_utils._secrets.sources import SecretSource, read_file
from ..._hosts import downloads
from ..._hosts.node_client import NodeClient
from ..k3s_node.access import find_authority
from ..shared import bindings, credentials
from ..shared.state_dir import StateHome
from . import sealed
from .shelves import BucketShelf, LocalShelf

Result = dict[str, t.Any]
Options = t.Mapping[str, t.Any]
KEY_FILE: t.Final = "backup.key"
_SOURCE: t.Final = SecretSource("key", "key_file", token=False)


@dataclasses.dataclass(frozen=True, slots=True)
class Shelves:
    """Where backups of a cluster are, and the secret that seals them."""

    home: StateHome
    local: LocalShelf
    bucket: BucketShelf | None

    @classmethod
    def open(cls, options: Options) -> Shelves:
        """Return the shelves that the options name.

        :raises MusterError: where the object store cannot be used.
        """
        home = StateHome(options["state_home"], options["cluster"])
        if not options["store"]:
            return cls(home, LocalShelf(home), None)
        binding = bindings.load_binding(home, options["store"], "store")
        place = require_resource(binding, "object_store", "artifacts", "store")
        signer = credentials.open_signer(binding, "store")
        return cls(home, LocalShelf(home), BucketShelf(binding, place.ref, signer, home.folder.name))

    def find_all(self) -> dict[str, model.BackupManifest]:
        """Return all whole backups by id; one that is here counts before its copy in the bucket."""
        stored = self.bucket.find_all() if self.bucket else []
        return {item.id: item for item in [*stored, *self.local.find_all()]}

    def read_secret(self, options: Options, *, make: bool) -> Secret:
        """Return the secret that was given, else the one of this state home; ``make``: one where it has none.

        :raises MusterError: where there is none.
        """
        given = _SOURCE.find(options["key"], options["key_file"])
        if given is not None:
            return given
        place = self.home.folder / KEY_FILE
        if not place.exists() and make:
            files.private_dir(self.home.folder)
            files.write_atomic(place, secrets.token_urlsafe(32).encode() + b"\n")
        if not place.exists():
            raise InputError("key", f"is missing, and {place} is not there", "Give the key that it was made with")
        return read_file(str(place), "key")


def examine(options: Options, host: str) -> Result:
    """Return what is to be done on a machine: refuse it, or name the backup that is to be restored."""
    shelves = Shelves.open(options)
    machine = model.ControlPlane.from_dict(options["machine"])
    known = find_authority(shelves.home)
    if options["purpose"] == "backup":
        model.check_backup(host, machine, known)
        free = host_blobs.free_bytes(shelves.home.folder)
        if free < machine.data_bytes:
            what = (
                f"{shelves.home.folder}: {free / 1e9:.2f} GB are free, and {machine.data_bytes / 1e9:.2f} GB are needed"
            )
            raise RefusedError(what, "Free some, or move muster_state")
        # One that was given and cannot be a key is refused before anything is copied.
        _SOURCE.find(options["key"], options["key_file"])
        return {"changed": False, "backups": _list(shelves.find_all().values())}
    found = shelves.find_all()
    backup = model.choose_backup(list(found.values()), options["backup"])
    sealed.require_key(_key(shelves.read_secret(options, make=False), backup), backup)
    _check_digest(shelves.local.archive(backup.id), backup)
    version = options["version"] or downloads.default_version("k3s")
    order = model.RestoreOrder(version, known, options["overwrite"], options["again"], options["servers"])
    reason = model.decide_restore(host, machine, backup, order)
    listed = _list(found.values())
    return {"changed": False, "backup": _show(backup), "restore": not reason, "reason": reason, "backups": listed}


def keep(options: Options, remote: NodeClient) -> Result:
    """Take an archive from a server, and remove backups that are more than are kept."""
    shelves = Shelves.open(options)
    machine = model.ControlPlane.from_dict(options["machine"])
    with shelves.local.lock():
        manifest = _take(shelves, options, remote, machine)
        shelves.local.finish(manifest)
        if shelves.bucket is not None:
            shelves.bucket.put(manifest, shelves.local.archive(manifest.id))
        removed = _remove_old(shelves, options["keep"])
    places = [str(shelves.local.archive(manifest.id).parent)]
    places += [f"{shelves.bucket.binding.name}/{manifest.id}"] if shelves.bucket else []
    return {"changed": True, "backup": _show(manifest), "places": places, "removed": removed}


def place(options: Options, remote: NodeClient) -> Result:
    """Bring an archive to a machine, after all of it was found to be what was sealed."""
    shelves = Shelves.open(options)
    with shelves.local.lock():
        backup = model.choose_backup(list(shelves.find_all().values()), options["backup"])
        key = _key(shelves.read_secret(options, make=False), backup)
        sealed.require_key(key, backup)
        archive = shelves.local.archive(backup.id)
        if not archive.is_file() and shelves.bucket is not None:
            files.private_dir(archive.parent)
            shelves.bucket.get(backup, archive)
            shelves.local.finish(backup)
        _check_digest(archive, backup)
        target = shlex.quote(options["archive"])
        _run(remote, f"umask 077; : > {target}")
        with open(archive, "rb") as handle:
            for piece in key.open(handle.read, str(archive)):
                _run(remote, f"cat >> {target}", piece)
    return {"changed": True, "backup": _show(backup)}


def _take(shelves: Shelves, options: Options, remote: NodeClient, machine: model.ControlPlane) -> model.BackupManifest:
    """Write the sealed archive; return its manifest, which is not written yet."""
    now = time.time()
    # With the part of the second: those of one second sort as they were made, too.
    backup = f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime(now))}-{int(now % 1 * 0x10000):04x}"
    salt = secrets.token_hex(16)
    key = sealed.SealKey(shelves.read_secret(options, make=True), bytes.fromhex(salt))
    target = shelves.local.begin(backup)
    digest, plain, size = hashlib.sha256(), [0], 0
    try:
        with open(target, "xb", opener=lambda path, flags: os.open(path, flags, 0o600)) as handle:
            for data in key.seal(_read(remote, options["archive"], plain), secrets.token_bytes(7)):
                handle.write(data)
                digest.update(data)
                size += len(data)
            handle.flush()
            os.fsync(handle.fileno())
    except OSError as exc:
        shutil.rmtree(target.parent, ignore_errors=True)
        raise RefusedError(f"{target}: {exc.strerror or exc}", "Free some space, or move muster_state") from exc
    except BaseException:
        shutil.rmtree(target.parent, ignore_errors=True)
        raise
    manifest = model.BackupManifest(
        id=backup,
        cluster=shelves.home.folder.name,
        made_at=format_time(now),
        host=remote.name,
        datastore=machine.datastore,
        k3s_version=machine.current,
        authority=machine.authority,
        plain_bytes=plain[0],
        data_bytes=machine.data_bytes,
        size=size,
        sha256=digest.hexdigest(),
        salt=salt,
        key_check=key.check,
    )
    return dataclasses.replace(manifest, seal=key.sign(manifest))


def _read(remote: NodeClient, path: str, count: list[int]) -> t.Iterator[bytes]:
    """Yield a file of a machine in pieces; ``count`` gets its bytes.

    :raises NodeError: when it is not the one that the machine has when it is read to its end.
    """
    digest, quoted = hashlib.sha256(), shlex.quote(path)
    number = 0
    while True:
        words = f"dd if={quoted} bs={sealed.PIECE_BYTES} skip={number} count=1 2>/dev/null | base64"
        try:
            data = base64.b64decode(_run(remote, words))
        except binascii.Error:
            raise NodeError(remote.name, f"{path} cannot be read", "Run this again") from None
        if not data:
            break
        digest.update(data)
        count[0] += len(data)
        yield data
        number += 1
        if len(data) < sealed.PIECE_BYTES:
            break
    if not count[0] or digest.hexdigest() != _run(remote, f"sha256sum < {quoted}").split()[0]:
        raise NodeError(remote.name, f"{path} did not arrive as it is there", "Run this again")


def _run(remote: NodeClient, command: str, data: bytes = b"") -> str:
    code, said, error = remote.run(command, data)
    if code:
        what = f"an archive cannot be read or written: {one_line((error or said).strip()[-200:])}"
        raise NodeError(remote.name, what, "Look whether its disk is full")
    return said


def _remove_old(shelves: Shelves, kept: int) -> list[str]:
    """Remove what is more than is kept, here and in the bucket; return the ids."""
    removed = model.choose_removed((item.id for item in shelves.local.find_all()), kept)
    for backup in removed:
        shelves.local.remove(backup)
    if shelves.bucket is not None:
        stored = model.choose_removed((item.id for item in shelves.bucket.find_all()), kept)
        for backup in stored:
            shelves.bucket.remove(backup)
        removed = sorted({*removed, *stored})
    return removed


def _check_digest(archive: pathlib.Path, backup: model.BackupManifest) -> None:
    """Refuse an archive that is here and is not the one of the manifest. One in a bucket is checked when it comes."""
    with contextlib.suppress(FileNotFoundError):
        if files.sha256_of(archive) != backup.sha256:
            raise RefusedError(f"{archive} is damaged: its SHA-256 is not that of its manifest", "Name another backup")


def _key(secret: Secret, backup: model.BackupManifest) -> sealed.SealKey:
    return sealed.SealKey(secret, bytes.fromhex(backup.salt))


def _show(backup: model.BackupManifest) -> Result:
    """Return what may be shown of a manifest: all but what belongs to its key."""
    hidden = ("salt", "key_check", "seal", "format")
    return {key: value for key, value in validators.plain_value(backup).items() if key not in hidden}


def _list(found: t.Iterable[model.BackupManifest]) -> list[Result]:
    return [_show(item) for item in sorted(found, key=lambda item: item.id)]
