# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The API client against scripted answers: retries, pace, redirects, credentials, messages."""

from __future__ import annotations

import random
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._http.client import HttpClient
from ansible_collections.muster.training.plugins.module_utils._http.errors import ExchangeError
from ansible_collections.muster.training.plugins.module_utils._http.messages import (
    HttpRequest,
    HttpResponse,
    json_request,
)
from ansible_collections.muster.training.plugins.module_utils._http.retry import Pacer, Timeouts
from ansible_collections.muster.training.plugins.module_utils._http.version import USER_AGENT
from ansible_collections.muster.training.plugins.module_utils._model.errors import ApiError, InputError, TransportError
from ansible_collections.muster.training.plugins.module_utils._secrets.auth import bearer
from ansible_collections.muster.training.plugins.module_utils._secrets.secret import Secret
from ansible_collections.muster.training.tests.support.fake_clock import FakeClock
from ansible_collections.muster.training.tests.support.scripted_http import Call, Script

BASE = "https://api.example.com/v1"


TOKEN = "tok-canary-9f3b1c"


RESET = ExchangeError("the connection was lost before the response was complete", transient=True)


REFUSED = ExchangeError("no connection to api.example.com port 443 (refused)", sent=False, transient=True)


def client(script: Script, clock: FakeClock | None = None, **options: t.Any) -> HttpClient:
    return HttpClient(
        BASE,
        auth=options.pop("auth", bearer(Secret(TOKEN, "api_token", token=True))),
        exchange=script,
        clock=clock or FakeClock(),
        rng=random.Random(7),
        **options,
    )


def test_get_sends_agent_and_credential_and_decodes() -> None:
    headers = {"User-Agent": USER_AGENT, "Authorization": f"Bearer {TOKEN}", "Accept": "application/json"}
    with Script(Call("GET", "/v1/nodes", answer={"a": 1}, query=[("x", "1"), ("x", "2")], headers=headers)) as script:
        assert client(script).get("/nodes", [("x", "1"), ("x", "2")]) == {"a": 1}
    assert str(script.origins[0]) == "https://api.example.com"
    assert USER_AGENT.startswith("muster.training/")


@pytest.mark.parametrize("status", [500, 502, 503, 504, 429])
def test_get_is_asked_again_until_it_answers(status: int) -> None:
    clock = FakeClock()
    calls = [Call("GET", "/v1/nodes", status=status), Call("GET", "/v1/nodes", status=status)]
    with Script(*calls, Call("GET", "/v1/nodes", answer=[])) as script:
        assert client(script, clock).get("/nodes") == []
    assert len(clock.slept) == 2 and 0.25 <= clock.slept[0] <= 0.5 <= clock.slept[1] <= 1.0


def test_attempts_are_bounded() -> None:
    clock = FakeClock()
    with (
        Script(*[Call("GET", "/v1/nodes", status=503)] * 4) as script,
        pytest.raises(ApiError, match="GET https://api.example.com/v1/nodes answered 503"),
    ):
        client(script, clock).get("/nodes")
    assert len(clock.slept) == 3


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 422])
def test_a_refusal_is_not_asked_again(status: int) -> None:
    with Script(Call("GET", "/v1/nodes", status=status)) as script, pytest.raises(ApiError) as caught:
        client(script).get("/nodes")
    assert caught.value.status == status and not caught.value.ambiguous


@pytest.mark.parametrize("status", [500, 502, 503, 504])
def test_create_is_never_repeated_after_a_server_error(status: int) -> None:
    with Script(Call("POST", "/v1/nodes", status=status, body={"n": 1})) as script, pytest.raises(ApiError) as caught:
        client(script).call(json_request("POST", "/nodes", body={"n": 1}))
    assert caught.value.ambiguous


def test_create_is_repeated_after_429_only() -> None:
    clock = FakeClock()
    calls = [
        Call("PUT", "/v1/asks/1/", status=429, answer_headers={"Retry-After": "7"}),
        Call("PUT", "/v1/asks/1/", answer={}),
    ]
    with Script(*calls) as script:
        client(script, clock).call(json_request("PUT", "/asks/1/", body={}, idempotent=False))
    assert len(clock.slept) == 1 and 7.0 <= clock.slept[0] <= 7.7


@pytest.mark.parametrize("failure", [RESET, REFUSED])
def test_create_is_not_repeated_after_a_broken_exchange(failure: ExchangeError) -> None:
    with Script(Call("POST", "/v1/nodes", failure=failure)) as script, pytest.raises(TransportError) as caught:
        client(script).call(json_request("POST", "/nodes", body={}))
    assert caught.value.ambiguous is failure.sent


def test_get_after_a_broken_exchange_is_repeated_and_never_ambiguous() -> None:
    with Script(*[Call("GET", "/v1/nodes", failure=RESET)] * 4) as script, pytest.raises(TransportError) as caught:
        client(script).get("/nodes")
    assert not caught.value.ambiguous
    assert str(caught.value).startswith("GET https://api.example.com/v1/nodes: the connection was lost")


def test_a_failure_that_will_not_change_is_not_repeated() -> None:
    tls = ExchangeError("the TLS certificate was refused (expired)", fix="Check the clock", sent=False)
    with (
        Script(Call("GET", "/v1/nodes", failure=tls)) as script,
        pytest.raises(TransportError, match="Check the clock"),
    ):
        client(script).get("/nodes")


@pytest.mark.parametrize(
    ("header", "low", "high"),
    [("3", 3, 3.3), ("1000000000", 60, 66), ("nonsense", 0.25, 0.5), ("", 0.25, 0.5), ("-5", 0.25, 0.5)],
)
def test_retry_after_is_honoured_up_to_a_cap(header: str, low: float, high: float) -> None:
    clock = FakeClock()
    calls = [
        Call("GET", "/v1/nodes", status=429, answer_headers={"Retry-After": header}),
        Call("GET", "/v1/nodes", answer={}),
    ]
    with Script(*calls) as script:
        client(script, clock).get("/nodes")
    assert low <= clock.slept[0] <= high


def test_retry_after_as_a_date() -> None:
    clock = FakeClock(epoch=1_445_412_470.0)
    headers = {"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"}
    with Script(
        Call("GET", "/v1/nodes", status=503, answer_headers=headers), Call("GET", "/v1/nodes", answer={})
    ) as script:
        client(script, clock).get("/nodes")
    assert 10 <= clock.slept[0] <= 11


def test_no_wait_that_ends_after_the_deadline() -> None:
    clock = FakeClock()
    call = Call("GET", "/v1/nodes", status=429, answer_headers={"Retry-After": "50"})
    with Script(call) as script, pytest.raises(ApiError):
        client(script, clock, timeouts=Timeouts(total_s=30)).get("/nodes")
    assert clock.slept == []


def test_a_quota_is_not_waited_for() -> None:
    def may_retry(response: HttpResponse) -> bool:
        return b"quota" not in response.body

    with Script(Call("GET", "/v1/nodes", status=429, answer={"error": "quota"})) as script, pytest.raises(ApiError):
        client(script, may_retry=may_retry).get("/nodes")


def test_pace_holds_over_retries_and_a_turn_too_late_is_an_error() -> None:
    clock = FakeClock()
    pacer = Pacer(10.0, clock)
    one = client(Script(*[Call("GET", "/v1/nodes", answer=1)] * 4), clock, pacer=pacer, timeouts=Timeouts(total_s=15))
    for _turn in range(3):
        one.get("/nodes")
    assert clock.slept == [10.0, 10.0]
    pacer.interval_s = 60.0
    clock.now += 60
    one.get("/nodes")
    with pytest.raises(TransportError, match="rate limit left no time for the call within 15 s") as caught:
        one.call(json_request("POST", "/nodes", body={}))
    assert not caught.value.ambiguous


def test_no_turn_for_another_try_leaves_the_first_answer() -> None:
    clock = FakeClock()
    pacer = Pacer(60.0, clock)
    with Script(Call("GET", "/v1/nodes", status=503)) as script, pytest.raises(ApiError, match="answered 503"):
        client(script, clock, pacer=pacer, timeouts=Timeouts(total_s=30)).get("/nodes")


def test_an_allowed_status_is_an_answer() -> None:
    with Script(Call("POST", "/v1/nodes", status=400, answer={"detail": "no capacity"})) as script:
        answer = client(script).call(json_request("POST", "/nodes", body={}), allow=(400,))
    assert (answer.status, answer.data) == (400, {"detail": "no capacity"})


def test_redirect_on_the_same_server_is_followed_with_its_query() -> None:
    moved = {"Location": "/v1/machines?limit=2&mark="}
    calls = [
        Call("GET", "/v1/nodes", status=301, answer_headers=moved),
        Call("GET", "/v1/machines", answer=[], query=[("limit", "2"), ("mark", "")]),
    ]
    with Script(*calls) as script:
        assert client(script).get("/nodes") == []


@pytest.mark.parametrize(
    "location",
    ["https://evil.example.net/v1/nodes", "http://api.example.com/v1/nodes", "//evil.example.net/", "https://api.example.com:444/",
     "https://api.example.com@evil.example.net/", "", "https://[bad", "javascript:1"],
)  # fmt: skip
def test_redirect_elsewhere_is_refused(location: str) -> None:
    with (
        Script(Call("GET", "/v1/nodes", status=302, answer_headers={"Location": location})) as script,
        pytest.raises(ApiError, match="not followed"),
    ):
        client(script).get("/nodes")


def test_redirect_of_a_write_is_refused_and_loops_end() -> None:
    moved = {"Location": "/v1/nodes"}
    with Script(Call("POST", "/v1/nodes", status=307, answer_headers=moved)) as script, pytest.raises(ApiError):
        client(script).call(json_request("POST", "/nodes", body={}))
    with (
        Script(*[Call("GET", "/v1/nodes", status=302, answer_headers=moved)] * 4) as script,
        pytest.raises(TransportError, match="too many redirects"),
    ):
        client(script).get("/nodes")


@pytest.mark.parametrize("body", [b"<html>login</html>", b'{"a": 1', b"\xff\xfe", b'{"a": NaN}', b"[" * 100_000])
def test_an_answer_that_is_not_json_is_named_by_size_only(body: bytes) -> None:
    call = Call("GET", "/v1/nodes", raw=body, answer_headers={"Content-Type": "text/html; x=y"})
    with Script(call) as script, pytest.raises(TransportError) as caught:
        client(script).get("/nodes")
    assert f"unexpected answer ({len(body)} bytes, text/html)" in str(caught.value)
    assert not caught.value.ambiguous


def test_a_write_with_an_unreadable_success_is_ambiguous() -> None:
    with Script(Call("POST", "/v1/nodes", raw=b'{"id": "i-1')) as script, pytest.raises(TransportError) as caught:
        client(script).call(json_request("POST", "/nodes", body={}))
    assert caught.value.ambiguous


def test_empty_body_is_none() -> None:
    with Script(Call("DELETE", "/v1/nodes/1", status=204)) as script:
        assert client(script).call(json_request("DELETE", "/nodes/1")).data is None


class RotatingAuth:
    def __init__(self) -> None:
        self.token = "first-token-1"

    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}

    def refresh(self) -> bool:
        self.token = "second-token-2"
        return True


def test_a_credential_that_can_be_renewed_gets_one_more_try() -> None:
    calls = [
        Call("GET", "/v1/nodes", status=401, headers={"Authorization": "Bearer first-token-1"}),
        Call("GET", "/v1/nodes", status=401, headers={"Authorization": "Bearer second-token-2"}),
    ]
    with Script(*calls) as script, pytest.raises(ApiError, match="credential was rejected"):
        client(script, auth=RotatingAuth()).get("/nodes")


def test_messages_hold_no_query_header_or_body() -> None:
    answer = {"message": "bad\nname \x1b[31m", "echo": "hidden-body-value"}
    call = Call("POST", "/v1/nodes", status=422, answer=answer, answer_headers={"X-Request-Id": "req-7\r\nx"})
    request = json_request("POST", "/nodes", query=[("key", "hidden-query")], body={"env": "hidden-env"})
    with Script(call) as script, pytest.raises(ApiError) as caught:
        client(script, error_detail=lambda data: data["message"]).call(request)
    text = str(caught.value) + repr(caught.value) + repr(request) + repr(script.done[0])
    assert "bad name [31m (request req-7x)" in text
    assert "hidden" not in text and TOKEN not in text


def test_a_detail_that_cannot_be_picked_is_left_out() -> None:
    with Script(Call("GET", "/v1/nodes", status=404, answer=["x"])) as script, pytest.raises(ApiError) as caught:
        client(script, error_detail=lambda data: data["message"]).get("/nodes")
    assert str(caught.value) == "GET https://api.example.com/v1/nodes answered 404"


def test_cloudflare_ban_is_told_from_a_missing_permission() -> None:
    call = Call("GET", "/v1/nodes", status=403, raw=b"error code: 1010")
    with Script(call) as script, pytest.raises(ApiError, match=r"blocked by Cloudflare \(error code: 1010\)"):
        client(script).get("/nodes")


def test_headers_that_would_inject_are_refused_before_anything_is_sent() -> None:
    with Script() as script, pytest.raises(InputError) as caught:
        client(script).send(HttpRequest("GET", "/nodes", headers={"X-Name": "value\r\nEvil: 1"}))
    assert "Evil" not in str(caught.value)
