# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The check of a bucket: steps on two nodes, and what is found when a store is not what it seems."""

from __future__ import annotations

import concurrent.futures
import threading
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._node import host_agent, s3_check
from ansible_collections.muster.training.tests.fakes import object_store


@pytest.fixture
def server() -> t.Iterator[object_store.ObjectStore]:
    with object_store.running() as found:
        yield found


def ask(step: str, **values: t.Any) -> dict[str, t.Any]:
    return host_agent.answer_request({"op": "s3", "node": "n", "step": step, **values})


def visit(
    server: object_store.ObjectStore, node: str, *reads: str, wait_s: float = 0, writes: bool = True
) -> dict[str, t.Any]:
    """Return what a node answers about the bucket; it reads what the first of ``reads`` writes."""
    url = server.address(f"check/{node}")
    check: dict[str, t.Any] = {"write": {"list": f"{server.url}/bucket?list-type=2"}}
    if writes:
        check["write"] |= {"put": url, "get": url, "seed": node, "done": server.address(f"done/{node}")}
    for writer in reads:
        other = server.address(f"check/{writer}")
        done = server.address(f"done/{writer}")
        check["read"] = {"get": other, "done": done, "delete": [other, done], "seed": writer, "writer": writer}
    answer = ask("visit", wait_s=wait_s, stores=[{"ca": None, "make": [], "checks": [check]}])
    (store,) = answer["stores"]
    (found,) = store["answers"]
    return t.cast("dict[str, t.Any]", found)


def test_two_nodes_write_and_read_what_the_other_wrote(server: object_store.ObjectStore) -> None:
    with concurrent.futures.ThreadPoolExecutor() as pool:
        answers = list(pool.map(lambda pair: visit(server, *pair, wait_s=10), [("a", "b"), ("b", "a")]))
    for answer in answers:
        assert answer["ok"] and answer["wrote"] and answer["latency_ms"] > 0 and answer["mb_per_s"] > 0
        assert "unread" not in answer and abs(answer["server_time"] - s3_check.time.time()) < 5
    assert server.objects == {}


def test_a_store_that_is_only_read_is_only_listed(server: object_store.ObjectStore) -> None:
    answer = visit(server, "a", writes=False)
    assert (
        answer["ok"]
        and "wrote" not in answer
        and "mb_per_s" not in answer
        and {method for method, *_ in server.asked} == {"GET"}
    )


def test_nothing_is_written_into_a_bucket_that_does_not_exist(server: object_store.ObjectStore) -> None:
    server.buckets.clear()
    answer = visit(server, "a", "b")
    assert not answer["ok"] and "the bucket does not exist" in answer["failed"] and answer["code"] == "NoSuchBucket"
    assert [method for method, *_ in server.asked] == ["GET"]


def test_an_answer_that_is_no_list_of_a_bucket_is_refused(server: object_store.ObjectStore) -> None:
    server.listed = b"<html>welcome</html>"
    answer = visit(server, "a", "b")
    assert not answer["ok"] and "not S3's list of a bucket" in answer["failed"] and server.objects == {}


def test_a_store_that_gives_other_bytes_is_refused(server: object_store.ObjectStore) -> None:
    server.objects |= {"check/b": b"other", "done/b": b"done"}
    answer = visit(server, "a", "b")
    assert not answer["ok"] and "reads 5 other bytes than b wrote" in answer["failed"]


def test_a_writer_that_writes_nothing_is_told_from_a_failure(server: object_store.ObjectStore) -> None:
    answer = visit(server, "a", "b")
    assert answer["ok"] and answer["unread"] and answer["wrote"]


def test_what_a_check_left_is_deleted(server: object_store.ObjectStore) -> None:
    server.objects["check/a"] = b"left"
    assert ask("clean_up", delete=[server.address("check/a"), server.address("check/b")]) == {"left": 0}
    assert server.objects == {}


def test_what_a_node_has_not_read_itself_is_not_deleted_by_another(server: object_store.ObjectStore) -> None:
    """The object is there, and its writer still reads it."""
    server.objects["check/b"] = s3_check.probe_content("b")
    answer = visit(server, "a", "b")
    assert answer["ok"] and answer["unread"] and "check/b" in server.objects


def test_a_store_that_cannot_be_asked_or_takes_too_long_fails_alone(
    server: object_store.ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3_check, "_VISIT_S", 0.5)
    held = threading.Event()
    whole = s3_check.make_buckets
    monkeypatch.setattr(s3_check, "make_buckets", lambda asked: whole(asked) if asked["ca"] != "slow" else held.wait(9))
    urls = {
        None: f"{server.url}/bucket?list-type=2",
        "zürich": "https://127.0.0.1:9/b?",
        "slow": "http://127.0.0.1:9/b?",
    }
    stores = [{"ca": ca, "make": [], "checks": [{"write": {"list": url}}]} for ca, url in urls.items()]
    stores.append({"ca": None, "make": [], "checks": [{"write": {"list": "http://a..b/bucket?"}}]})
    good, *bad = [store["answers"][0] for store in ask("visit", wait_s=0, stores=stores)["stores"]]
    held.set()
    assert good["ok"] and not any(answer["ok"] for answer in bad)
    assert [answer["failed"] for answer in bad] == [
        "cannot be asked (TypeError)",
        "its check was not over after 0 s",
        "cannot be asked (UnicodeEncodeError)",
    ]
