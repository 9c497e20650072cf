# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Answers out of a connection's bytes: in order, whole, unpacked; what is no plain answer is refused."""

from __future__ import annotations

import gzip
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.module_utils._http.messages import HttpResponse
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.http_parser import Answers

PLAIN = b"HTTP/1.1 201 Created\r\nContent-Length: 5\r\nX-A: b\r\n\r\nhello"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2;x=y\r\nlo\r\n0\r\n\r\n"
EMPTY = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"


def read(*pieces: bytes) -> list[HttpResponse]:
    answers, found = Answers(), []
    for piece in pieces:
        answers.feed(piece)
        while (one := answers.next()) is not None:
            found.append(one)
    assert answers.empty == (not pieces or not b"".join(pieces) or bool(found)), "nothing is left over here"
    return found


@pytest.mark.parametrize("whole", [PLAIN, CHUNKED])
def test_an_answer_is_whole_only_at_its_end(whole: bytes) -> None:
    for number in range(1, len(whole)):
        answers = Answers()
        answers.feed(whole[:number])
        assert answers.next() is None and not answers.empty
        answers.feed(whole[number:])
        found = answers.next()
        assert found is not None and found.body == b"hello" and answers.empty


def test_answers_come_one_after_the_other_however_they_are_cut() -> None:
    whole = PLAIN + CHUNKED + EMPTY + CHUNKED
    for size in (1, 7, 64, len(whole)):
        found = read(*(whole[start : start + size] for start in range(0, len(whole), size)))
        assert [(item.status, item.body) for item in found] == [
            (201, b"hello"),
            (200, b"hello"),
            (404, b""),
            (200, b"hello"),
        ]
    assert found[0].headers["x-a"] == "b"


def test_a_packed_body_is_unpacked() -> None:
    body = gzip.compress(b"x" * 100_000)
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(body)
    (found,) = read(head + body)
    assert found.body == b"x" * 100_000


def test_a_body_of_many_chunks_is_looked_at_once() -> None:
    chunk = b"1000\r\n" + b"x" * 4096 + b"\r\n"
    answers = Answers()
    answers.feed(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    began = time.process_time()
    for _ in range(4000):
        answers.feed(chunk)
        assert answers.next() is None
    answers.feed(b"0\r\n\r\n")
    found = answers.next()
    assert found is not None and len(found.body) == 4000 * 4096
    assert time.process_time() - began < 5, "16 MiB; were they looked at with each piece, it would be 32 GiB"


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 100 Continue\r\n\r\n",
        b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\nuntil it closes",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Encoding: gzip\r\n\r\nab",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Encoding: br\r\n\r\nab",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-2\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffffff\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabc",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1" * 70_000,
        b"<html>\r\n\r\n",
        b"x" * 70_000,
    ],
)
def test_what_is_no_plain_answer_is_refused(data: bytes) -> None:
    answers = Answers()
    answers.feed(data)
    with pytest.raises(ValueError, match=r"."):
        answers.next()


def test_a_packed_body_that_is_cut_short_is_refused() -> None:
    body = gzip.compress(b"x" * 1000)[:-8]
    answers = Answers()
    answers.feed(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    with pytest.raises(ValueError, match="cut short"):
        answers.next()


@given(st.binary(max_size=300), st.integers(1, 40))
def test_any_bytes_are_answers_a_beginning_or_refused(data: bytes, size: int) -> None:
    for start in (b"", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"):
        whole, outcomes = start + data, []
        for step in (size, len(whole) + 1):
            answers, found = Answers(), []
            try:
                for at in range(0, len(whole), step):
                    answers.feed(whole[at : at + step])
                    while (one := answers.next()) is not None:
                        found.append(one)
            except ValueError as exc:
                outcomes.append((found, type(exc)))
            else:
                outcomes.append((found, answers.empty))
        assert outcomes[0] == outcomes[1], "it does not matter in what pieces they come"
