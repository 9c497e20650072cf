# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where a log is taken up again; logs over broken connections of a real API server are in tests/kube_api."""

from __future__ import annotations

import types
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._http.messages import HttpRequest
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.logs import LogStream, Place, Wish
from ansible_collections.muster.training.tests.support.fake_clock import FakeClock

FIRST, SECOND = "2026-11-21T10:00:00.100000000Z", "2026-11-21T10:00:00.200000000Z"
LOG = [f"{FIRST} a", f"{FIRST} b", f"{FIRST} c", f"{SECOND} d"]


def read(lines: t.Sequence[str], after: Place | None) -> tuple[list[tuple[bytes, Place | None]], list[HttpRequest]]:
    """Read a log that the kubelet has in these lines, whatever it was asked for; return lines with their places."""
    asked: list[HttpRequest] = []
    chunks = ["".join(f"{line}\n" for line in lines).encode(), b""]

    def open_(_what: str, request: HttpRequest) -> t.Any:
        asked.append(request)
        return types.SimpleNamespace(read=lambda _timeout: chunks.pop(0), close=lambda: None)

    line: t.Any = types.SimpleNamespace(clock=FakeClock(), open=open_)
    stream = LogStream(line, Wish("n", "p", "node", after=after))
    return [(text, stream.place) for text in stream], asked


def test_each_line_has_a_place() -> None:
    lines, asked = read(LOG, None)
    assert lines == [(b"a", (FIRST, 1)), (b"b", (FIRST, 2)), (b"c", (FIRST, 3)), (b"d", (SECOND, 1))]
    assert "sinceTime" not in dict(asked[0].query)


@pytest.mark.parametrize(
    ("after", "left"),
    [((FIRST, 1), [b"b", b"c", b"d"]), ((FIRST, 3), [b"d"]), ((SECOND, 1), [])],
)
def test_a_log_goes_on_behind_a_line(after: Place, left: list[bytes]) -> None:
    """The kubelet gives all lines of that second again."""
    lines, asked = read(LOG, after)
    assert [text for text, _place in lines] == left
    assert dict(asked[0].query)["sinceTime"] == after[0]


def test_a_log_that_began_a_new_file_meanwhile_is_read_whole() -> None:
    later = [f"2026-11-21T10:05:0{number}.000000000Z {number}" for number in range(3)]
    lines, _asked = read(later, (FIRST, 4711))
    assert [text for text, _place in lines] == [b"0", b"1", b"2"]
