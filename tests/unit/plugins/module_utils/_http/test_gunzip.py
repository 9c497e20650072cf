# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compressed bodies and their limit."""

from __future__ import annotations

import gzip
import typing as t

from ansible_collections.muster.training.plugins.module_utils._http.clock import SYSTEM_CLOCK, Deadline
from ansible_collections.muster.training.plugins.module_utils._http.connection_pool import ConnectionPool
from ansible_collections.muster.training.plugins.module_utils._http.messages import HttpRequest
from ansible_collections.muster.training.plugins.module_utils._http.urls import Origin
from ansible_collections.muster.training.tests.support.loopback import http_answer, raw_server, reply

GET = HttpRequest("GET", "/v1/nodes")


def exchange(port: int, request: HttpRequest = GET, total_s: float = 10.0, **options: t.Any) -> bytes:
    wire = options.pop("wire", None) or ConnectionPool(**options)
    origin = Origin("http", "127.0.0.1", port)
    return wire(origin, request, Deadline(SYSTEM_CLOCK, total_s)).body


def test_gzip_is_unpacked() -> None:
    answer = http_answer(gzip.compress(b'{"a":1}'), headers={"Content-Encoding": "gzip"})
    with raw_server(reply(answer)) as port:
        assert exchange(port) == b'{"a":1}'
