# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bad input, items 13 to 33: credentials, HTTP and renting.

The numbers are those of the project's list of bad inputs and faults. What a machine has to do about many answers is
shown in full elsewhere (``tests/faults``); here each item has one test that carries its number.
"""

from __future__ import annotations

import contextlib
import email.utils
import gzip
import pathlib
import socket
import threading
import time
import typing as t
from collections.abc import Iterator

import pytest

from ansible_collections.muster.training.plugins.module_utils._http.client import HttpClient
from ansible_collections.muster.training.plugins.module_utils._http.connection_pool import ConnectionPool
from ansible_collections.muster.training.plugins.module_utils._http.errors import CHUNK
from ansible_collections.muster.training.plugins.module_utils._http.retry import Timeouts
from ansible_collections.muster.training.plugins.module_utils._http.tls import TlsOptions
from ansible_collections.muster.training.plugins.module_utils._http.urls import parse_base_url, proxy_for
from ansible_collections.muster.training.plugins.module_utils._model.errors import (
    ApiError,
    InputError,
    TransportError,
)
from ansible_collections.muster.training.plugins.module_utils._model.lease import OrderRefused, OrderUnsettled
from ansible_collections.muster.training.plugins.module_utils._secrets.auth import bearer
from ansible_collections.muster.training.plugins.module_utils._secrets.scrubber import scrub
from ansible_collections.muster.training.plugins.module_utils._secrets.secret import Secret
from ansible_collections.muster.training.plugins.module_utils._secrets.sources import SecretSource
from ansible_collections.muster.training.plugins.plugin_utils._providers.connection import ProviderConnection
from ansible_collections.muster.training.plugins.plugin_utils._providers.lambda_cloud.client import LambdaClient
from ansible_collections.muster.training.plugins.plugin_utils._providers.runpod.client import RunpodClient
from ansible_collections.muster.training.plugins.plugin_utils._providers.vastai.provision import VastProvider
from ansible_collections.muster.training.plugins.plugin_utils._workflows.node_pool.accounts import (
    Externals,
    open_providers,
)
from ansible_collections.muster.training.tests.fakes.api import Fault, FaultKind
from ansible_collections.muster.training.tests.fakes.cycle import NODES, PRODUCTS, Cycle, Server
from ansible_collections.muster.training.tests.fakes.pool_world import World
from ansible_collections.muster.training.tests.fakes.sim_provider import SimProvider, h100
from ansible_collections.muster.training.tests.fakes.vastai import FakeVast
from ansible_collections.muster.training.tests.fakes.virtual import VirtualClock
from ansible_collections.muster.training.tests.fakes.wire import access
from ansible_collections.muster.training.tests.support.fake_clock import FakeClock
from ansible_collections.muster.training.tests.support.loopback import http_answer, raw_server, read_request, reply
from ansible_collections.muster.training.tests.support.scripted_http import Call, Script
from ansible_collections.muster.training.tests.unit.plugins.module_utils._http.test_tls import (
    make_certificate,
    over_tls,
)
from ansible_collections.muster.training.tests.unit.plugins.plugin_utils._providers.orders import launch, order

TOKEN = "tok-canary-51ab93c2"
URL = "https://api.example.com/v1"
LAUNCH = "/api/v1/instance-operations/launch"


def client(script: Script, clock: FakeClock | None = None) -> HttpClient:
    auth = bearer(Secret(TOKEN, "api_token", token=True))
    return HttpClient(
        URL, auth=auth, exchange=script, clock=clock or FakeClock(), error_detail=lambda body: body["message"]
    )


def given(script: Script) -> ProviderConnection:
    return ProviderConnection(Secret(TOKEN, "api_token", token=True), exchange=script, clock=VirtualClock())


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[Server, str]]:
    server = Server()
    with server.running() as url:
        yield server, url


def life(served: tuple[Server, str], operation: str, kind: str, name: str = "runpod") -> Cycle:
    """Live a whole life of a pool with one fault in it; return it when nothing is left and all is proved."""
    cycle = Cycle(PRODUCTS[name], *served)
    cycle.api.fault = Fault(operation, t.cast(FaultKind, kind))
    proof = cycle.run()
    assert cycle.api.tripped and proof.clean and cycle.settle() == 0
    return cycle


def test_13_a_missing_token_names_its_sources_and_sends_nothing() -> None:
    with pytest.raises(InputError) as caught:
        open_providers([{"name": "lambda"}], Externals(environ={}))
    assert all(word in str(caught.value) for word in ("api_token", "api_token_file", "LAMBDA_API_KEY"))


@pytest.mark.parametrize("text", [f"{TOKEN} x", f"'{TOKEN}'", f'"{TOKEN}"', f"\ufeff{TOKEN}", f"{TOKEN}\r\nX-Evil: 1"])
def test_14_a_token_that_is_none(text: str, tmp_path: pathlib.Path) -> None:
    source = SecretSource("api_token", "api_token_file", ("LAMBDA_API_KEY",))
    (tmp_path / "key").write_text(text, encoding="utf-8", newline="")
    for found in ({"value": text}, {"file": str(tmp_path / "key")}, {"environ": {"LAMBDA_API_KEY": text}}):
        with pytest.raises(InputError) as caught:
            source.need(**t.cast(t.Any, found))
        assert TOKEN not in str(caught.value)
    (tmp_path / "key").write_text(f"{TOKEN}\n")
    assert source.need(file=str(tmp_path / "key")).reveal() == TOKEN


def test_15_a_rejected_token_is_tried_once_and_not_shown() -> None:
    with (
        Script(Call("GET", "/v1/x", status=401, answer={"message": f"bad {TOKEN}"})) as script,
        pytest.raises(ApiError, match="answered 401.*rejected") as caught,
    ):
        client(script).get("/x")
    assert TOKEN not in scrub(str(caught.value))


def test_16_a_forbidden_delete_is_loud_and_names_what_bills() -> None:
    world = World()
    world.create(2)
    world.lambda_.delete_faults = [ApiError("POST", "/terminate", 403)] * 99
    proof = world.delete()
    assert not proof.clean
    assert sorted(item["ids"][0] for item in proof.billing) == ["lambda-1", "lambda-2"]
    assert all("403" in item["problem"] for item in proof.billing)
    listing = World()
    listing.create(1)
    listing.lambda_.list_faults = [ApiError("GET", "/instances", 403)] * 99
    assert not listing.delete().clean


def test_17_no_such_id_is_no_proof() -> None:
    world = World()
    world.create(1)
    world.lambda_.delete_faults = ["404"]
    assert world.delete().clean
    # The machine was there all the same, and was ended when the listing still showed it.
    assert world.lambda_.deleted == ["lambda-1"] and world.alive() == 0


def test_18_a_conflict_on_create_is_looked_into(served: tuple[Server, str]) -> None:
    assert isinstance(launch(Call("POST", LAUNCH, status=409, answer={})), OrderUnsettled)
    world = World()
    world.lambda_.answers = [OrderUnsettled("status 409")]
    outcome = world.create(1)
    # It was not there, so another was ordered; had it been ours it would have been adopted (item 23).
    assert outcome.failure == "" and world.alive() == 1


def test_19_a_cursor_that_is_gone_is_no_short_listing() -> None:
    first = {"pods": [{"id": "a"}], "pagination": {"nextCursor": "c1", "hasNextPage": True}}
    with (
        Script(
            Call("GET", "/v2/pods", answer=first), Call("GET", "/v2/pods", status=410, answer={"title": "Gone"})
        ) as script,
        pytest.raises(ApiError, match="410"),
    ):
        RunpodClient(given(script)).pods()


@pytest.mark.parametrize("status", [400, 422])
def test_20_a_wrong_body_is_not_sent_again_and_its_field_is_told(status: int) -> None:
    answer = {"error": {"code": "global/invalid-parameters", "message": f"name: too long ({TOKEN})", "suggestion": ""}}
    found = launch(Call("POST", LAUNCH, status=status, answer=answer))
    assert isinstance(found, OrderRefused) and found.why == "rule" and "name: too long" in found.reason


@pytest.mark.parametrize(
    ("header", "low", "high"),
    [("7", 7.0, 7.7), ("date", 25.0, 33.1), (None, 0.25, 0.5), ("1000000000", 60.0, 66.1), ("soon", 0.25, 0.5)],
)
def test_21_how_long_a_429_is_waited_for(header: str | None, low: float, high: float) -> None:
    clock = FakeClock()
    if header == "date":
        header = email.utils.formatdate(clock.time() + 30, usegmt=True)
    extra = {"Retry-After": header} if header else {}
    with Script(Call("GET", "/v1/x", status=429, answer_headers=extra), Call("GET", "/v1/x", answer=[])) as script:
        assert client(script, clock).get("/x") == []
    assert len(clock.slept) == 1 and low <= clock.slept[0] <= high
    clock = FakeClock()
    with (
        Script(*[Call("GET", "/v1/x", status=429, answer_headers={"Retry-After": "61"})] * 2) as script,
        pytest.raises(ApiError, match="429"),
    ):
        client(script, clock).get("/x")
    assert sum(clock.slept) < 120, "waits end before the call's whole time is over"


@pytest.mark.parametrize("status", [500, 502, 503, 504])
def test_22_a_server_error_is_bounded_on_reads_and_never_repeated_on_creates(status: int) -> None:
    clock = FakeClock()
    with Script(*[Call("GET", "/v1/x", status=status)] * 4) as script, pytest.raises(ApiError):
        client(script, clock).get("/x")
    assert len(clock.slept) == 3
    assert isinstance(launch(Call("POST", LAUNCH, status=status, answer={})), OrderUnsettled)


@pytest.mark.parametrize("kind", ["error_after", "timeout_after", "html_after", "truncated"])
def test_23_an_error_after_the_effect_makes_one_machine(served: tuple[Server, str], kind: str) -> None:
    cycle = Cycle(PRODUCTS["runpod"], *served)
    cycle.api.fault = Fault("create", t.cast(FaultKind, kind))
    cycle._rent()
    assert cycle.completed and len(cycle.ours) == NODES
    ids = {event.id for event in cycle.ledger.events if event.event in ("created", "adopted")}
    assert ids == {thing.id for thing in cycle.ours}
    assert cycle.teardown().clean


@pytest.mark.parametrize("kind", ["timeout", "late_60s"])
def test_24_a_late_effect_is_covered(served: tuple[Server, str], kind: str) -> None:
    life(served, "create", kind)


ODD = {
    "truncated": b'{"data": [{"id": "a"',
    "page": b"<!doctype html><html>Sign in</html>",
    "empty": b"",
    "null": b'{"data": null}',
    "wrong shape": b'{"data": {"a": 1}}',
    "list of text": b'{"data": ["a"]}',
    "number": b"7",
    "NaN": b'{"data": [{"id": NaN}]}',
    "deep": b"[" * 100_000,
}


@pytest.mark.parametrize("name", ODD)
def test_25_an_answer_of_another_shape_is_an_error_with_its_size(name: str) -> None:
    with (
        Script(*[Call("GET", "/api/v1/instances", raw=ODD[name])] * 1) as script,
        pytest.raises(TransportError, match="unexpected answer") as caught,
    ):
        LambdaClient(given(script)).instances()
    assert "Sign in" not in str(caught.value)


def test_25_unknown_fields_and_numbers_as_text_do_no_harm() -> None:
    item = {"id": 12, "name": "x", "status": "active", "never_heard_of": {"a": [1]}, "instance_type": "odd"}
    with Script(Call("GET", "/api/v1/instances", answer={"data": [item], "more": 1})) as script:
        (found,) = LambdaClient(given(script)).instances()
    assert str(found["id"]) == "12" and "never_heard_of" not in found


def test_26_a_success_that_says_it_failed_is_a_failure() -> None:
    api = FakeVast(VirtualClock(), asks=2)
    clock = t.cast(VirtualClock, api.clock)
    api.refusals = [(200, "no_capacity", False)]
    with api.loopback() as url:
        assert isinstance(VastProvider(access(url, clock)).create(order("vastai")), OrderRefused)
    with (
        Script(Call("GET", "/api/v1/instances", answer={"errors": [{"message": "no"}]})) as script,
        pytest.raises(TransportError, match="the listing is not whole: it has 'errors' .no."),
    ):
        LambdaClient(given(script)).instances()


def test_27_slow_endless_huge_and_exploding_answers_end() -> None:
    stop = threading.Event()

    def drip(sock: socket.socket) -> None:
        read_request(sock)
        sock.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        with contextlib.suppress(OSError):
            while not stop.wait(0.02):
                sock.sendall(b"1\r\nx\r\n")

    bomb = http_answer(gzip.compress(b"0" * 70_000_000), headers={"Content-Encoding": "gzip"})
    huge = b"HTTP/1.1 200 OK\r\nContent-Length: 2000000000\r\n\r\n"
    started = time.monotonic()
    for conversation, words in ((drip, "in time"), (reply(bomb), "larger than"), (reply(huge), "larger than")):
        with raw_server(conversation) as port, pytest.raises(TransportError, match=words):
            limits = Timeouts(total_s=0.5)
            HttpClient(f"http://127.0.0.1:{port}", timeouts=limits).get("/x")
    stop.set()
    assert time.monotonic() - started < 60


@pytest.mark.parametrize("place", ["https://other.example.com/v1/x", "http://api.example.com/v1/x", "//evil/x"])
def test_28_a_redirect_elsewhere_takes_no_credential_along(place: str) -> None:
    with (
        Script(Call("GET", "/v1/x", status=302, answer_headers={"Location": place})) as script,
        pytest.raises(ApiError, match="redirect"),
    ):
        client(script).get("/x")
    assert len(script.origins) == 1


@pytest.mark.parametrize(("days", "trusted", "words"), [(5, False, "refused"), (-1, True, "expired")])
def test_29_a_certificate_that_proves_nothing_ends_the_call(
    tmp_path: pathlib.Path, days: int, trusted: bool, words: str
) -> None:
    paths = make_certificate(tmp_path, days=days)
    tls = TlsOptions(ca_path=paths[0] if trusted else "")
    with raw_server(over_tls(paths)) as port, pytest.raises(TransportError, match=words) as caught:
        HttpClient(f"https://127.0.0.1:{port}", exchange=ConnectionPool(tls=tls)).get("/x")
    assert "clock" in str(caught.value)
    with pytest.raises(InputError, match="must use https"):
        parse_base_url("http://api.example.com", "api_url")


def test_30_names_and_proxies_that_lead_nowhere_are_named_in_time() -> None:
    started = time.monotonic()
    with pytest.raises(TransportError, match="no-such-host.invalid cannot be resolved"):
        HttpClient("https://no-such-host.invalid").get("/x")
    with raw_server() as port:
        pass
    with pytest.raises(TransportError, match=f"no connection to 127.0.0.1 port {port} .*Check that the server is up"):
        HttpClient("https://api.example.com", exchange=ConnectionPool(proxy=f"http://127.0.0.1:{port}")).get("/x")
    assert time.monotonic() - started < 30
    origin = parse_base_url("https://api.example.com", "api_url").origin
    with pytest.raises(InputError):
        proxy_for(origin, "env", {"https_proxy": "socks5://x"})


def test_30_a_server_that_speaks_no_tls_is_told_from_one_that_is_away() -> None:
    def talk(sock: socket.socket) -> None:
        sock.recv(CHUNK)
        sock.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    words = "the server does not speak TLS. Check the port, and https:// or"
    with raw_server(talk) as port, pytest.raises(TransportError, match=words):
        HttpClient(f"https://127.0.0.1:{port}").get("/x")


def _pages(*pages: dict[str, t.Any]) -> list[str]:
    with Script(*[Call("GET", "/v2/pods", answer=page) for page in pages]) as script:
        return [str(pod["id"]) for pod in RunpodClient(given(script)).pods()]


def _page(ids: t.Iterable[t.Any], cursor: str | None) -> dict[str, t.Any]:
    return {
        "pods": [{"id": str(ident)} for ident in ids],
        "pagination": {"nextCursor": cursor, "hasNextPage": cursor is not None},
    }


def test_31_pages_end_and_repeat_nothing() -> None:
    with pytest.raises(TransportError, match="unexpected answer"):
        _pages(_page("ab", "c1"), _page("cd", "c1"))
    # "b" was deleted between the pages, so that everything moved up and "c" came twice.
    assert _pages(_page("abc", "c1"), _page("cd", None)) == ["a", "b", "c", "d"]
    many = [
        _page(range(start, start + 73), None if start + 73 >= 10_001 else f"c{start}") for start in range(0, 10_001, 73)
    ]
    assert len(_pages(*many)) == len(many) * 73


def test_32_an_offer_that_is_gone_gives_way_to_one_within_the_cap() -> None:
    clock = VirtualClock()
    offers = [h100(price=2.0), h100(price=2.5, region="us-west-1"), h100(price=9.0, region="us-west-2")]
    world = World(SimProvider(clock, offers=offers), clock=clock)
    world.lambda_.answers = [OrderRefused("capacity", "gone"), OrderRefused("capacity", "gone")]
    outcome = world.create(1, max_price_usd_per_hour=3.0)
    assert [order.offer.price_usd_per_hour for order in world.lambda_.orders] == [2.0, 2.5]
    assert "refused" in outcome.failure and world.alive() == 0


def test_33_a_quota_in_the_middle_of_a_gang_gives_it_back() -> None:
    world = World()
    world.lambda_.answers = [None, None, OrderRefused("quota", "spend limit of 80 USD per hour"), None]
    outcome = world.create(4)
    assert "spend limit" in outcome.failure + " ".join(outcome.state.history)
    assert world.alive() == 0 and not any(lease.open for lease in world.leases.values())
    assert outcome.proof.clean
