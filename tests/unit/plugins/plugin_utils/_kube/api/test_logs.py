# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where a log is taken up again; logs over broken connections of a real API server are in tests/kube_api."""

from __future__ import annotations

import dataclasses
import json
import math
import types
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._http.errors import ExchangeError
from ansible_collections.muster.training.plugins.module_utils._http.messages import HttpRequest, HttpResponse
from ansible_collections.muster.training.plugins.module_utils._model.errors import TransportError
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.errors import KubeError
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.logs import LogPosition, LogRequest, LogStream
from ansible_collections.muster.training.tests.support.fake_clock import FakeClock

FIRST, SECOND = "2026-11-21T10:00:00.100000000Z", "2026-11-21T10:00:00.200000000Z"
LOG = [f"{FIRST} a", f"{FIRST} b", f"{FIRST} c", f"{SECOND} d"]


def pod_answer(ended: bool, uid: str = "u") -> HttpResponse:
    """Answer a question for the pod, whose container has ended or runs."""
    state = {"terminated": {"exitCode": 0}} if ended else {"running": {}}
    pod = {"metadata": {"uid": uid}, "status": {"containerStatuses": [{"name": "node", "state": state}]}}
    return HttpResponse(200, body=json.dumps(pod).encode())


def read(
    lines: t.Sequence[str], after: LogPosition | None
) -> tuple[list[tuple[bytes, LogPosition | None]], list[HttpRequest]]:
    """Read a log that the kubelet has in these lines, whatever it was asked for; return lines with their places."""
    asked: list[HttpRequest] = []

    def open_(_what: str, request: HttpRequest) -> t.Any:
        asked.append(request)
        chunks = ["".join(f"{line}\n" for line in lines).encode(), b""]
        return types.SimpleNamespace(read=lambda _timeout: chunks.pop(0), close=lambda: None)

    line: t.Any = types.SimpleNamespace(clock=FakeClock(), open=open_, send=lambda *_args, **_more: pod_answer(True))
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
    """Answers each request for a log with the next of these, in pieces; None is a pause of ten seconds.

    With the last of them the container has ended, and further requests get the last one again.
    """

    def __init__(self, *answers: t.Sequence[bytes | None] | KubeError) -> None:
        self.answers = list(answers)
        self.clock = FakeClock()
        self.asked: list[dict[str, str]] = []
        self.patience_s, self.stats = 60.0, types.SimpleNamespace(answered=True)

    def open(self, _what: str, request: HttpRequest) -> t.Any:
        self.asked.append(dict(request.query))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, KubeError):
            raise answer
        pieces = list(answer)

        def read(timeout_s: float) -> bytes | None:
            piece = pieces.pop(0) if pieces else b""
            if piece is None:
                self.clock.sleep(max(10.0, timeout_s))
            return piece

        return types.SimpleNamespace(read=read, close=lambda: None)

    def send(self, *_args: t.Any, **_more: t.Any) -> HttpResponse:
        return pod_answer(len(self.answers) == 1)

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
    assert [asked.get("sinceTime") for asked in kubelet.asked[:2]] == [None, "2026-11-21T10:00:14Z"]


def test_a_large_log_that_falls_silent_is_requested_again() -> None:
    kubelet = Kubelet([big(*range(15)), *[None] * 5, b"never"], [big(*range(14, 20)), b""])
    assert kubelet.log()[0] == list(range(20))


def test_a_log_that_is_silent_is_followed_and_its_end_is_asked_for_once_more() -> None:
    kubelet = Kubelet([big(0), *[None] * 9, big(1), b""])
    assert kubelet.log()[0] == [0, 1]
    assert [asked.get("follow") for asked in kubelet.asked] == ["true", None]


def test_what_a_log_sends_again_counts_once_and_a_pod_that_is_gone_ends_it() -> None:
    """Kubelets send all lines of the last second again, however many those are."""
    same = b"".join(b"2026-11-21T10:00:00Z %d %s\n" % (number, b"y" * 100_000) for number in range(15))
    assert Kubelet([same, b""], [same, b""]).log()[0] == list(range(15))
    gone = KubeError("log of Pod n/p", "not found", status=404)
    assert Kubelet([big(*range(15)), b""], gone).log()[0] == list(range(15))
    with pytest.raises(KubeError):
        Kubelet(gone).log()


def test_a_pod_that_took_the_place_of_another_is_not_read_as_that_one() -> None:
    """Pods of a Volcano job have the same names in each attempt."""
    kubelet = Kubelet([big(0), b""], [big(1), b""])
    stream = LogStream(t.cast(t.Any, kubelet), LogRequest("n", "p", "node", uid="another"))
    assert [int(line.split()[0]) for line in stream] == [0] and len(kubelet.asked) == 1


def test_a_line_that_an_answer_ended_within_is_read_whole() -> None:
    whole = b"2026-11-21T10:00:01Z 1 of two words\n"
    assert Kubelet([whole[:-6], b""], [whole, b""]).log()[0] == [1]
    # A program may end without the end of its last line.
    stream = LogStream(t.cast(t.Any, Kubelet([whole[:-1], b""])), LogRequest("n", "p", "node"))
    assert list(stream) == [b"1 of two words"]


def test_what_a_kubelet_says_itself_comes_once() -> None:
    words = b"unable to retrieve container logs for containerd://abc"
    stream = LogStream(t.cast(t.Any, Kubelet([words, b""], [words, b""])), LogRequest("n", "p", "node"))
    assert list(stream) == [words]


# The parts of a node and its cluster that may be restarted while a container prints; the words are the kubelet's own.
_WORDS = b'rpc error: code = Unavailable desc = connection error: "dial unix /run/containerd/containerd.sock"'
_STEPS, _TICK_S = 200, 0.13
_END_S = _STEPS * _TICK_S


@dataclasses.dataclass(frozen=True)
class Restart:
    """Which parts are away, and from when until when."""

    parts: frozenset[str]
    since: float
    until: float

    def takes(self, part: str, now: float) -> bool:
        return part in self.parts and self.since <= now < self.until


class Cluster:
    """A container that prints a step each tick and ends; an API server and a kubelet that hand its log on."""

    def __init__(self, restart: Restart) -> None:
        self.clock, self.restart = FakeClock(), restart
        self.patience_s, self.stats = 360.0, types.SimpleNamespace(answered=True)
        self.began = self.clock.monotonic()
        self.asked = 0

    def is_settling(self) -> bool:
        return False

    @property
    def now(self) -> float:
        return self.clock.monotonic() - self.began

    def _lines(self, since: str | None) -> list[tuple[float, bytes]]:
        """Return the lines of the log with their times, of whole seconds only as kubelets have them."""
        times = [number * _TICK_S for number in range(1, _STEPS + 1)]
        first = math.floor(_seconds(since)) if since else 0.0
        # Two lines of one step have one time.
        rows = [(at, f"{_stamp(at)} {kind} {number}\n") for number, at in enumerate(times, 1) for kind in "ab"]
        return [(at, text.encode()) for at, text in rows if at >= first]

    def open(self, _what: str, request: HttpRequest) -> t.Any:
        self.asked += 1
        query, now = dict(request.query), self.now
        if self.restart.takes("apiserver", now):
            raise ExchangeError("connection refused", transient=True)
        if self.restart.takes("kubelet", now):
            raise KubeError("log of Pod n/p", "dial tcp: connection refused", status=500)
        if "kubelet" in self.restart.parts and 0 <= now - self.restart.until < 0.5:
            raise KubeError("log of Pod n/p", 'pod "p" cannot be found - no logs available', status=400)
        return Answer(self, self._lines(query.get("sinceTime")), query.get("follow") == "true")

    def send(self, *_args: t.Any, **_more: t.Any) -> HttpResponse:
        if self.restart.takes("apiserver", self.now):
            raise TransportError("connection refused", "Check the server")
        # Its kubelet says a while later that the container has ended.
        told = self.now > max(_END_S + 0.6, 0.0 if self.now < self.restart.since else self.restart.until + 0.6)
        return pod_answer(told and not self.restart.takes("kubelet", self.now))


class Answer:
    """One answer to a request for the log."""

    def __init__(self, cluster: Cluster, lines: list[tuple[float, bytes]], follow: bool) -> None:
        self.cluster, self.lines, self.follow = cluster, lines, follow
        self.opened, self.is_over = cluster.now, False

    def close(self) -> None:
        self.is_over = True

    def read(self, timeout_s: float) -> bytes | None:
        cluster = self.cluster
        if self.is_over:
            return b""
        broken = self._broken()
        if broken is not None:
            return broken
        ready = [text for at, text in self.lines if at <= cluster.now]
        if ready:
            self.lines = self.lines[len(ready) :]
            return b"".join(ready)
        if not self.follow or cluster.now >= _END_S + 0.05:
            self.is_over = True
            return b""
        cluster.clock.sleep(min(timeout_s, 0.05))
        return b"" if timeout_s <= 0 else self._broken()

    def _broken(self) -> bytes | None:
        cut = next((part for part in ("apiserver", "kubelet", "containerd") if self._is_cut(part)), None)
        if cut is None:
            return None
        self.is_over = True
        if cut == "apiserver":
            raise ExchangeError("the connection was lost", transient=True)
        # It is in the middle of a line.
        return self.lines[0][1][:33] if cut == "kubelet" and self.lines else _WORDS

    def _is_cut(self, part: str) -> bool:
        gone = self.cluster.restart
        return part in gone.parts and self.opened < gone.until and self.cluster.now >= gone.since


def _stamp(at: float) -> str:
    return f"2026-11-21T10:00:{at:012.9f}Z"


def _seconds(stamp: str) -> float:
    return float(stamp[17:29])


RESTARTS = {
    "kubelet": frozenset({"kubelet"}),
    "containerd": frozenset({"containerd"}),
    "apiserver": frozenset({"apiserver"}),
    "k3s upgrade": frozenset({"apiserver", "kubelet", "containerd"}),
    "follower": frozenset[str](),
}


@pytest.mark.parametrize("part", RESTARTS)
@pytest.mark.parametrize("moment", [0.3, 11.07, _END_S - 0.2])
def test_no_line_is_lost_or_doubled_when_a_part_is_restarted(part: str, moment: float) -> None:
    """The last of the moments has the container end while the part is away."""
    away_s = 9.0 if part == "k3s upgrade" else 4.0
    cluster = Cluster(Restart(RESTARTS[part], moment, moment + away_s))
    stream = LogStream(t.cast(t.Any, cluster), LogRequest("n", "p", "node", uid="u"))
    read: list[bytes] = []
    while not stream.has_ended:
        line = stream.next(0.5)
        read += [line] if line is not None else []
        if part == "follower" and moment is not None and cluster.now >= moment:
            # Another follower begins behind the line that this one has taken.
            after, moment = stream.position, math.inf
            stream.close()
            stream = LogStream(t.cast(t.Any, cluster), LogRequest("n", "p", "node", after=after, uid="u"))
    # What the kubelet says itself is no step.
    steps = [line for line in read if not line.startswith(b"rpc error")]
    assert steps == [f"{kind} {number}".encode() for number in range(1, _STEPS + 1) for kind in "ab"]
    assert stream.is_whole
    assert cluster.asked < 40
