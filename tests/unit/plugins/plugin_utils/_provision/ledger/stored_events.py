# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ledger events, for tests."""

from __future__ import annotations

from ansible_collections.muster.training.plugins.module_utils._model.ledger import LedgerEvent
from ansible_collections.muster.training.plugins.module_utils._model.timestamps import format_time


def event(number: int, kind: str = "intent") -> LedgerEvent:
    token = f"{number:08x}"
    return LedgerEvent.from_dict(
        {
            "schema": 1,
            "at": format_time(1_795_255_200 + number),
            "cluster": "lab",
            "token": token,
            "event": kind,
            "resource": "instance",
            "provider": "lambda",
            "account": "acc1",
            "pool": "h100",
            "name": f"lab-h100-0-{token}",
        }
    )
