# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where a log is taken up again; logs over broken connections of a real API server are in tests/kube_api."""

from __future__ import annotations

import types
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._http.messages import HttpRequest
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.errors import KubeError
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.logs import LogPosition, LogRequest, LogStream
from ansible_collections.muster.training.tests.support.fake_clock import FakeClock

FIRST, SECOND = "2026-11-21T10:00:00.100000000Z", "2026-11-21T10:00:00.200000000Z"
LOG = [f"{FIRST} a", f"{FIRST} b", f"{FIRST} c", f"{SECOND} d"]


def read(
    lines: t.Sequence[str], after: LogPosition | None
) -> tuple[list[tuple[bytes, LogPosition | None]], list[HttpRequest]]:
    """Read a log that the kubelet has in these lines, whatever it was asked for; return lines with their places."""
    asked: list[HttpRequest] = []
    chunks = ["".join(f"{line}\n" for line in lines).encode(), b""]

    def open_(_what: str, request: HttpRequest) -> t.Any:
        asked.append(request)
        return types.SimpleNamespace(read=lambda _timeout: chunks.pop(0), close=lambda: None)

    line: t.Any = types.SimpleNamespace(clock=FakeClock(), open=open_)
    stream = LogStream(line, LogRequest("n", "p", "node", after=after))
    return [(text, stream.position) for text in stream], asked


def test_each_line_has_a_place() -> None:
    lines, asked = read(LOG, None)
    assert lines == [(b"a", (FIRST, 1)), (b"b", (FIRST, 2)), (b"c", (FIRST, 3)), (b"d", (SECOND, 1))]
    assert "sinceTime" not in dict(asked[0].query)


@pytest.mark.parametrize(
    ("after", "left"),
    [((FIRST, 1), [b"b", b"c", b"d"]), ((FIRST, 3), [b"d"]), ((SECOND, 1), [])],
)
def test_a_log_goes_on_behind_a_line(after: LogPosition, left: list[bytes]) -> None:
    """The kubelet gives all lines of that second again."""
    lines, asked = read(LOG, after)
    assert [text for text, _place in lines] == left
    assert dict(asked[0].query)["sinceTime"] == after[0]


def test_a_log_that_began_a_new_file_meanwhile_is_read_whole() -> None:
    later = [f"2026-11-21T10:05:0{number}.000000000Z {number}" for number in range(3)]
    lines, _asked = read(later, (FIRST, 4711))
    assert [text for text, _place in lines] == [b"0", b"1", b"2"]


class Kubelet:
    """Answers each request for a log with the next of these, in pieces; None is a pause of ten seconds."""

    def __init__(self, *answers: t.Sequence[bytes | None] | KubeError) -> None:
        self.answers = list(answers)
        self.clock = FakeClock()
        self.asked: list[dict[str, str]] = []
        self.patience_s, self.stats = 60.0, types.SimpleNamespace(answered=True)

    def open(self, _what: str, request: HttpRequest) -> t.Any:
        self.asked.append(dict(request.query))
        answer = self.answers.pop(0)
        if isinstance(answer, KubeError):
            raise answer
        pieces = list(answer)

        def read(timeout_s: float) -> bytes | None:
            piece = pieces.pop(0) if pieces else b""
            if piece is None:
                self.clock.sleep(max(10.0, timeout_s))
            return piece

        return types.SimpleNamespace(read=read, close=lambda: None)

    def is_settling(self) -> bool:
        return False

    def log(self) -> tuple[list[int], LogStream]:
        """Return the numbers of the lines that were read."""
        stream = LogStream(t.cast(t.Any, self), LogRequest("n", "p", "node"))
        return [int(line.split()[0]) for line in stream], stream


def big(*numbers: int) -> bytes:
    """Return lines of 100 kB, each a second after the one before."""
    return b"".join(f"2026-11-21T10:00:{number:02}Z {number} {'y' * 100_000}\n".encode() for number in numbers)


def test_a_log_that_began_a_new_file_is_read_to_its_end() -> None:
    """Its kubelet was behind: the stream ends with the old file, and another request has the newest one."""
    kubelet = Kubelet([big(*range(15)), b""], [big(*range(14, 25)), b""])
    assert kubelet.log()[0] == list(range(25))
    assert [asked.get("sinceTime") for asked in kubelet.asked] == [None, "2026-11-21T10:00:14Z"]


def test_a_large_log_that_falls_silent_is_requested_again() -> None:
    kubelet = Kubelet([big(*range(15)), *[None] * 5, b"never"], [big(*range(14, 20)), b""])
    assert kubelet.log()[0] == list(range(20)) and len(kubelet.asked) == 2


def test_a_small_log_that_is_silent_or_ends_is_requested_once() -> None:
    kubelet = Kubelet([big(0), *[None] * 9, big(1), b""])
    assert kubelet.log()[0] == [0, 1] and len(kubelet.asked) == 1


def test_what_a_log_sends_again_counts_once_and_a_pod_that_is_gone_ends_it() -> None:
    """Kubelets send all lines of the last second again, however many those are."""
    same = b"".join(b"2026-11-21T10:00:00Z %d %s\n" % (number, b"y" * 100_000) for number in range(15))
    assert Kubelet([same, b""], [same, b""]).log()[0] == list(range(15))
    gone = KubeError("log of Pod n/p", "not found", status=404)
    assert Kubelet([big(*range(15)), b""], gone).log()[0] == list(range(15))
    with pytest.raises(KubeError):
        Kubelet(gone).log()
