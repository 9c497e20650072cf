# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Builds Secrets whose values no output shows, and a hash by which a change of the values can be seen."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping

from ....module_utils._model.errors import InputError
from ..api.kinds import KubeObject, ObjectMeta
from ..api.kubeconfig import register_secret

# The hash may be shown; guessing a weak value from it takes some time by these rounds.
_ROUNDS = 50_000


def build_secret(meta: ObjectMeta, kind: str, texts: Mapping[str, object], encoded: Mapping[str, object]) -> KubeObject:
    """Return a Secret of the type ``kind``; its values are registered as secrets.

    :param texts: the values as plain text.
    :param encoded: further values, in base64.
    :raises InputError: naming the value that is wrong.
    """
    data: dict[str, str] = {}
    for key, value in texts.items():
        if not isinstance(value, str | int | float) or isinstance(value, bool):
            raise InputError(f"data.{key}", "must be text")
        data[str(key)] = base64.b64encode(register_secret(str(value)).encode()).decode()
    for key, value in encoded.items():
        try:
            raw = base64.b64decode("".join(str(value).split()), validate=True)
        except ValueError:
            raise InputError(f"data_base64.{key}", "is not base64") from None
        register_secret(raw.decode("utf-8", "replace"))
        data[str(key)] = base64.b64encode(raw).decode()
    return {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "type": kind, "data": data}


def keyed_hash(live: KubeObject, data: Mapping[str, str]) -> str:
    """Return 16 hex digits that change with the values; the key is the uid of this very Secret."""
    uid = str((live.get("metadata") or {}).get("uid") or "")
    text = json.dumps(dict(sorted(data.items())), separators=(",", ":"))
    return hashlib.pbkdf2_hmac("sha256", text.encode(), uid.encode(), _ROUNDS, 8).hex()
