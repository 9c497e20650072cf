# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A connection to a scripted API, for tests of the clients."""

from __future__ import annotations

import typing as t

from ansible_collections.muster.training.plugins.module_utils._secrets.secret import Secret
from ansible_collections.muster.training.plugins.plugin_utils._providers.connection import ProviderConnection
from ansible_collections.muster.training.tests.support.fake_clock import FakeClock
from ansible_collections.muster.training.tests.support.scripted_http import Script

TOKEN = "tok-canary-5d0c7e"


BEARER = {"Authorization": f"Bearer {TOKEN}"}


def access(script: Script, **options: t.Any) -> ProviderConnection:
    secret = Secret(options.pop("token", TOKEN), "api_token", token=True)
    return ProviderConnection(secret, exchange=script, clock=options.pop("clock", None) or FakeClock(), **options)


def pods(*numbers: int) -> list[dict[str, t.Any]]:
    return [{"id": f"pod-{number}"} for number in numbers]
