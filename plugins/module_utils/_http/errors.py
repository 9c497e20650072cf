# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The error of a failed exchange, and the size of one read or write."""

from __future__ import annotations

CHUNK = 64 * 1024
# The fix when a server of another protocol responds.
OTHER_PROTOCOL = "Check the port, and https:// or http:// in the address"


class ExchangeError(Exception):
    """A failed exchange, inside this package only; the client turns it into a ``TransportError``.

    :param message: what happened, without the address.
    :param sent: whether bytes of the request may have reached the server.
    :param transient: whether another try may end otherwise.
    """

    def __init__(self, message: str, *, fix: str = "", sent: bool = True, transient: bool = False) -> None:
        super().__init__(message)
        self.message = message
        self.fix = fix
        self.sent = sent
        self.transient = transient
