# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A client of an API server whose HTTP is scripted."""

from __future__ import annotations

import typing as t

from ansible_collections.muster.training.plugins.plugin_utils._kube.api.client import Client
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.connect import connect
from ansible_collections.muster.training.tests.support.fake_clock import FakeClock
from ansible_collections.muster.training.tests.support.scripted_http import Script


def scripted_client(script: Script, **options: t.Any) -> Client:
    """Return a client that sends to ``script``."""
    exchange: t.Any = script
    wanted = {"host": "https://kube.example", "token": "token-0123456789", **options}
    return connect(wanted, environ={}, exchange=exchange, clock=FakeClock())
