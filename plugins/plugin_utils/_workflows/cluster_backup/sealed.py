# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The sealed form of an archive: pieces of AES-256-GCM under a key that scrypt makes of the user's.

Each piece has its number and whether it is the last one in its nonce (the STREAM construction of Hoang, Reyhanitabar,
Rogaway and Vizar, 2015), so a piece that is changed, moved, left out or cut off is found. cryptography is what
ansible-core itself requires.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import struct
import typing as t

from ....module_utils._model import validators
from ....module_utils._model.control_backup import BackupManifest
from ....module_utils._model.errors import RefusedError
from ....module_utils._secrets.secret import Secret

PIECE_BYTES: t.Final = 4 << 20
_MAGIC: t.Final = b"MUSTERBACKUP1\n"
_PREFIX_BYTES: t.Final = 7
_LENGTH: t.Final = struct.Struct(">I")
_TAG_BYTES: t.Final = 16
# RFC 7914; 32 MiB, a tenth of a second.
_SCRYPT: t.Final = {"n": 2**15, "r": 8, "p": 1, "maxmem": 64 << 20}


class SealKey:
    """The keys of one backup: one for the archive, one for the manifest."""

    def __init__(self, secret: Secret, salt: bytes) -> None:
        both = hashlib.scrypt(secret.reveal().encode(), salt=salt, dklen=64, **_SCRYPT)
        self._archive, self._manifest = both[:32], both[32:]

    @property
    def check(self) -> str:
        """A keyed digest that tells the right key from another one, and nothing of it."""
        return hmac.new(self._manifest, b"key", hashlib.sha256).hexdigest()

    def sign(self, manifest: BackupManifest) -> str:
        """Return the keyed digest of all fields of a manifest but its seal."""
        values = validators.plain_value(manifest)
        values.pop("seal")
        return hmac.new(self._manifest, json.dumps(values, sort_keys=True).encode(), hashlib.sha256).hexdigest()

    def seal(self, pieces: t.Iterable[bytes], prefix: bytes) -> t.Iterator[bytes]:
        """Yield the sealed form of an archive; ``prefix``: seven random bytes."""
        cipher = _cipher(self._archive)
        yield _MAGIC + prefix
        number, held = 0, None
        for piece in pieces:
            if held is not None:
                yield _frame(cipher.encrypt(_nonce(prefix, number, last=False), held, None))
                number += 1
            held = piece
        yield _frame(cipher.encrypt(_nonce(prefix, number, last=True), held or b"", None))

    def open(self, read: t.Callable[[int], bytes], what: str) -> t.Iterator[bytes]:
        """Yield the archive again. ``read`` returns as many bytes as asked for, fewer at the end.

        :raises RefusedError: when anything of it is not as it was sealed.
        """
        from cryptography.exceptions import InvalidTag

        cipher = _cipher(self._archive)
        head = read(len(_MAGIC) + _PREFIX_BYTES)
        prefix = head[len(_MAGIC) :]
        damaged = RefusedError(f"{what} is damaged: it is not what was sealed", "Name another backup")
        if not head.startswith(_MAGIC) or len(prefix) != _PREFIX_BYTES:
            raise damaged
        number, size = 0, read(_LENGTH.size)
        while True:
            wanted = _LENGTH.unpack(size)[0] if len(size) == _LENGTH.size else 0
            data = read(wanted) if _TAG_BYTES <= wanted <= PIECE_BYTES + _TAG_BYTES else b""
            if not data or len(data) != wanted:
                raise damaged
            size = read(_LENGTH.size)
            try:
                yield cipher.decrypt(_nonce(prefix, number, last=not size), data, None)
            except InvalidTag:
                raise damaged from None
            if not size:
                return
            number += 1


def require_key(key: SealKey, manifest: BackupManifest) -> None:
    """Refuse a key that is not the one of a backup, and a manifest that was changed.

    :raises RefusedError: saying which.
    """
    if not hmac.compare_digest(key.check, manifest.key_check):
        raise RefusedError(
            f"the backup {manifest.id} was sealed with another key",
            "Give the key that it was made with (muster_backup_key)",
        )
    if not hmac.compare_digest(key.sign(manifest), manifest.seal):
        raise RefusedError(f"the manifest of the backup {manifest.id} was changed", "Name another backup")


def _frame(data: bytes) -> bytes:
    return _LENGTH.pack(len(data)) + data


def _nonce(prefix: bytes, number: int, *, last: bool) -> bytes:
    return prefix + _LENGTH.pack(number) + bytes([last])


def _cipher(key: bytes) -> t.Any:
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError as exc:
        raise RefusedError("the Python of ansible-playbook has no cryptography", "pip install cryptography") from exc
    return AESGCM(key)
