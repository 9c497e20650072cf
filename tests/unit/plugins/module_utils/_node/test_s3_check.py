# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The check of a bucket: steps on two nodes, and what is found when a store is not what it seems."""

from __future__ import annotations

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


def write(server: object_store.ObjectStore, node: str) -> dict[str, t.Any]:
    url = server.address(f"check/{node}")
    return ask("write_probe", list=f"{server.url}/bucket?list-type=2", put=url, get=url, seed=node)


def read(server: object_store.ObjectStore, node: str) -> dict[str, t.Any]:
    url = server.address(f"check/{node}")
    return ask("read_probe", get=url, delete=url, seed=node, writer=node)


def test_two_nodes_write_and_read_what_the_other_wrote(server: object_store.ObjectStore) -> None:
    for node in ("a", "b"):
        answer = write(server, node)
        assert answer["ok"] and answer["latency_ms"] > 0 and answer["mb_per_s"] > 0
        assert abs(answer["server_time"] - s3_check.time.time()) < 5
    assert [read(server, node) for node in ("b", "a")] == [{"ok": True}] * 2
    assert server.objects == {}


def test_a_store_that_is_only_read_is_only_listed(server: object_store.ObjectStore) -> None:
    answer = ask("write_probe", list=f"{server.url}/bucket?list-type=2")
    assert answer["ok"] and "mb_per_s" not in answer and {method for method, *_ in server.asked} == {"GET"}


def test_nothing_is_written_into_a_bucket_that_does_not_exist(server: object_store.ObjectStore) -> None:
    server.buckets.clear()
    answer = write(server, "a")
    assert not answer["ok"] and "the bucket does not exist" in answer["failed"] and answer["code"] == "NoSuchBucket"
    assert [method for method, *_ in server.asked] == ["GET"]


def test_an_answer_that_is_no_list_of_a_bucket_is_refused(server: object_store.ObjectStore) -> None:
    server.listed = b"<html>welcome</html>"
    answer = write(server, "a")
    assert not answer["ok"] and "not S3's list of a bucket" in answer["failed"] and server.objects == {}


def test_a_store_that_gives_other_bytes_is_refused(server: object_store.ObjectStore) -> None:
    write(server, "a")
    server.objects["check/a"] = b"other"
    assert "reads 5 other bytes than a wrote" in read(server, "a")["failed"]


def test_what_a_check_left_is_deleted(server: object_store.ObjectStore) -> None:
    write(server, "a")
    assert ask("clean_up", delete=[server.address("check/a"), server.address("check/b")]) == {"left": 0}
    assert server.objects == {}
