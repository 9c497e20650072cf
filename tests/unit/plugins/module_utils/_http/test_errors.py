# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The error of a failed exchange: by default the request may have been sent, and another try does not help."""

from __future__ import annotations

from ansible_collections.muster.training.plugins.module_utils._http.errors import ExchangeError


def test_an_exchange_error_is_cautious_by_default() -> None:
    error = ExchangeError("the connection was lost")
    assert (str(error), error.message, error.fix, error.sent, error.transient) == (
        "the connection was lost",
        "the connection was lost",
        "",
        True,
        False,
    )
