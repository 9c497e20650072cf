# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One request with the credentials of a binding."""

from __future__ import annotations

import pytest

from ansible_collections.muster.training.plugins.module_utils._http.messages import HttpRequest
from ansible_collections.muster.training.plugins.module_utils._http.retry import Timeouts
from ansible_collections.muster.training.plugins.module_utils._model.binding import Binding
from ansible_collections.muster.training.plugins.module_utils._model.errors import ApiError, TransportError
from ansible_collections.muster.training.plugins.plugin_utils._services import keyed_call
from ansible_collections.muster.training.tests.support.loopback import http_answer, raw_server, reply


def binding(port: int) -> Binding:
    about = {"name": "m", "component": "tracking", "mode": "bind", "endpoint": f"http://127.0.0.1:{port}"}
    return Binding.from_dict(about)


@pytest.mark.parametrize(
    ("keys", "sent"),
    [
        ({}, ""),
        ({"token": "canary-token-0001"}, "authorization: bearer canary-token-0001"),
        ({"username": "me", "password": "pass-word-1"}, "authorization: basic bwu6cgfzcy13b3jklte="),
        ({"api_key": "canary-key-0001"}, "authorization: basic yxbpomnhbmfyes1rzxktmdawmq=="),
    ],
)
def test_the_credentials_of_a_service(keys: dict[str, str], sent: str) -> None:
    asked: list[bytes] = []
    with raw_server(reply(http_answer(b'{"a": 1}'), seen=asked)) as port:
        assert keyed_call.call(binding(port), keys, HttpRequest("GET", "/x")).data == {"a": 1}
    head = asked[0].decode().lower()
    assert sent in head and ("authorization" in head) == bool(keys)


def test_a_request_that_is_sent_once_is_not_repeated() -> None:
    asked: list[bytes] = []
    away = reply(http_answer(b"", "503 Service Unavailable"), seen=asked)
    with raw_server(away, away) as port, pytest.raises(ApiError):
        keyed_call.send_once(binding(port), {}, HttpRequest("GET", "/x"), (), Timeouts(total_s=5.0))
    assert len(asked) == 1
    with pytest.raises(TransportError):
        keyed_call.send_once(binding(port), {}, HttpRequest("GET", "/x"), (), Timeouts(total_s=5.0))
