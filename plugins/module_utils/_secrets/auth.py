# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How a secret goes into HTTP headers. Each kind fits the ``Auth`` that ``_http.client`` expects."""

from __future__ import annotations

from collections.abc import Mapping

from .secret import Secret


class StaticAuth:
    """A header that stays the same: a refused credential is not tried again."""

    __slots__ = ("_name", "_prefix", "_secret")

    def __init__(self, name: str, prefix: str, secret: Secret) -> None:
        self._name = name
        self._prefix = prefix
        self._secret = secret

    def headers(self) -> Mapping[str, str]:
        return {self._name: self._prefix + self._secret.reveal()}

    def refresh(self) -> bool:
        return False


def bearer(secret: Secret) -> StaticAuth:
    """Return ``Authorization: Bearer …`` (RFC 6750)."""
    return StaticAuth("Authorization", "Bearer ", secret)


def header(name: str, secret: Secret) -> StaticAuth:
    """Return the bare secret in a header of its own, such as ``X-API-KEY``."""
    return StaticAuth(name, "", secret)
