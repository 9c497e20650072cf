# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where backups are: in the state home, and in the bucket of an object store. The manifest is what is written last."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import hashlib
import json
import os
import pathlib
import shutil
import typing as t

from ....module_utils._model import validators
from ....module_utils._model.binding import Binding
from ....module_utils._model.control_backup import ID, BackupManifest
from ....module_utils._model.errors import InputError, LockHeldError, RefusedError
from ....module_utils._node import dataset_stage, files
from ....module_utils._node.s3_client import S3Error, Store
from ..._services.s3_addresses import ObjectPlace, S3Signer
from ..shared.state_dir import StateHome

ARCHIVE, MANIFEST = "archive.sealed", "manifest.json"
_FOLDER: t.Final = "backups"
_PART: t.Final = ".part"
_PIECE: t.Final = 1 << 20
# The largest that S3 takes in one request.
_LARGEST: t.Final = 5 << 30
_MANIFEST_BYTES: t.Final = 1 << 16


class LocalShelf:
    """Backups in the state home: a folder each, 0700 with files of 0600."""

    def __init__(self, home: StateHome) -> None:
        self.folder = home.folder / _FOLDER

    @contextlib.contextmanager
    def lock(self) -> t.Iterator[None]:
        """Keep others of this controller from backing up or restoring this cluster meanwhile.

        :raises LockHeldError: when one does.
        """
        files.private_dir(self.folder)
        with open(self.folder / ".lock", "a", opener=lambda path, flags: os.open(path, flags, 0o600)) as handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                what = "another process of this controller backs this cluster up, or restores it"
                raise LockHeldError(what, "Wait until it has ended") from None
            yield

    def archive(self, backup: str) -> pathlib.Path:
        """Return where the sealed archive of a backup is, or would be."""
        return self.folder / backup / ARCHIVE

    def find_all(self) -> list[BackupManifest]:
        """Return the manifests of all whole backups. A file that cannot be read as one does not count."""
        found = []
        for place in sorted(self.folder.glob(f"*/{MANIFEST}")):
            with contextlib.suppress(InputError):
                manifest = BackupManifest.from_dict(files.read_json(place))
                if manifest.id == place.parent.name:
                    found.append(manifest)
        return found

    def begin(self, backup: str) -> pathlib.Path:
        """Return where a new archive is written; what earlier ones left that were cut is removed."""
        for place in self.folder.iterdir():
            if place.is_dir() and ID.match(place.name) and not (place / MANIFEST).exists():
                shutil.rmtree(place)
        files.private_dir(self.folder / backup)
        return self.archive(backup)

    def finish(self, manifest: BackupManifest) -> None:
        """Write the manifest: from now on it is a backup."""
        files.write_json(self.folder / manifest.id / MANIFEST, validators.plain_value(manifest))

    def remove(self, backup: str) -> None:
        """Remove a backup, its manifest first."""
        files.unlink(self.folder / backup / MANIFEST)
        shutil.rmtree(self.folder / backup, ignore_errors=True)


@dataclasses.dataclass
class BucketShelf:
    """Backups below ``muster-backups/CLUSTER/`` in the bucket ``ref`` of a binding."""

    binding: Binding
    ref: str
    signer: S3Signer
    cluster: str

    def __post_init__(self) -> None:
        self._place = ObjectPlace.from_ref(self.ref, "muster-backups", self.cluster)
        self._store = Store(self.binding.ca)

    def find_all(self) -> list[BackupManifest]:
        """Return the manifests of all whole backups, as :class:`LocalShelf` does."""
        found = []
        for backup in self._list():
            data = self._send("GET", f"{backup}/{MANIFEST}", limit=_MANIFEST_BYTES)
            with contextlib.suppress(InputError, ValueError):
                manifest = BackupManifest.from_dict(json.loads(data))
                if manifest.id == backup:
                    found.append(manifest)
        return found

    def put(self, manifest: BackupManifest, archive: pathlib.Path) -> None:
        """Store a backup, its manifest last."""
        if manifest.size > _LARGEST:
            raise RefusedError(f"{archive}: larger than 5 GiB, which no store takes at once", "Keep it without store")
        self._send("PUT", f"{manifest.id}/{ARCHIVE}", source=lambda: _read_pieces(archive), size=manifest.size)
        self._send("PUT", f"{manifest.id}/{MANIFEST}", body=json.dumps(validators.plain_value(manifest)).encode())

    def get(self, manifest: BackupManifest, target: pathlib.Path) -> None:
        """Bring an archive, with its digest checked."""
        part = target.with_name(target.name + _PART)
        digest = hashlib.sha256()
        with open(part, "wb", opener=lambda path, flags: os.open(path, flags, 0o600)) as handle:

            def take(data: bytes) -> None:
                digest.update(data)
                handle.write(data)

            self._send("GET", f"{manifest.id}/{ARCHIVE}", sink=take)
        if digest.hexdigest() != manifest.sha256:
            part.unlink()
            raise RefusedError(f"the backup {manifest.id} in {self.binding.name} is damaged", "Name another backup")
        part.replace(target)

    def remove(self, backup: str) -> None:
        """Remove a backup, its manifest first."""
        for name in (MANIFEST, ARCHIVE):
            self._send("DELETE", f"{backup}/{name}")

    def _list(self) -> list[str]:
        """Return the ids of backups with a manifest."""
        found: set[str] = set()
        after = ""
        while True:
            url = self.signer.sign_list(self._place, limit=1000, after=after)
            page = dataset_stage.list_objects({"ca": self.binding.ca, "list": url})
            if "problem" in page:
                raise RefusedError(f"{self.binding.name}: {page['problem']}", page["fix"])
            names = [key.removeprefix(self._place.prefix) for key, _size, _etag in page["objects"]]
            found |= {name.partition("/")[0] for name in names if name.endswith(f"/{MANIFEST}")}
            if not page["next"]:
                return sorted(name for name in found if ID.match(name))
            after = page["next"]

    def _send(self, method: str, name: str, limit: int = 0, **values: t.Any) -> bytes:
        url = self.signer.sign(method, self._place.bucket, self._place.key(name))
        return self._ask(method, url, limit, **values)

    def _ask(self, method: str, url: str, limit: int = 0, **values: t.Any) -> bytes:
        try:
            if limit:
                return self._store.read_again(url, limit)
            # A body that goes to a sink must not begin anew in the middle.
            send = self._store.send if "sink" in values else self._store.send_again
            return send(method, url, **values).body
        except S3Error as exc:
            raise RefusedError(f"{self.binding.name}: {exc.problem}", exc.fix) from exc


def _read_pieces(place: pathlib.Path) -> t.Iterator[bytes]:
    with open(place, "rb") as handle:
        while piece := handle.read(_PIECE):
            yield piece
