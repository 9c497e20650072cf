# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a server answers a node, as it is: nothing is judged here."""

from __future__ import annotations

from ansible_collections.muster.training.plugins.module_utils._node import http_check
from ansible_collections.muster.training.tests.support.loopback import Api


def test_an_answer_is_returned_whatever_its_status() -> None:
    routes = {
        "GET /health": lambda *_a: (200, b"OK", {"Content-Type": "text/plain"}),
        "POST /graphql": lambda *_a: (502, b"<html>" + b"x" * 900, {"Content-Type": "text/html"}),
    }
    with Api(routes) as server:
        found = http_check.ask({"url": f"{server.url}/health", "method": "GET", "ca": None})
        assert (found["status"], found["kind"], found["text"]) == (200, "text/plain", "OK") and found["latency_ms"] > 0
        found = http_check.ask({"url": f"{server.url}/graphql", "method": "POST", "body": "{}", "ca": None})
        assert (found["status"], len(found["text"])) == (502, 300)
        assert server.requests[-1][4] == b"{}"


def test_no_answer_has_a_fix() -> None:
    with Api({}) as server:
        gone = server.url
    found = http_check.ask({"url": f"{gone}/health", "method": "GET"})
    assert "refused" in found["failed"] and found["fix"] and "status" not in found
