# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Many short exchanges over a few connections, all in one thread.

A thread per connection costs three times the processor's time (0.11 s instead of 0.035 s for 200 applies), and beside
an API server on the same machine that is time the server lacks. Only the plain case is handled here; whatever else
happens to an exchange leaves it unanswered, and the caller sends it again in the patient way.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import collections
import selectors
import ssl
import typing as t
from collections.abc import Callable, Iterator, Sequence

from ....module_utils._http.clock import Deadline
from ....module_utils._http.errors import CHUNK
from ....module_utils._http.messages import HttpRequest, HttpResponse, check_headers
from ....module_utils._http.sockets import TimedSocket
from .http_parser import Answers

# So many bytes are sent at most while the answer to something sent earlier is not there.
_AHEAD = 16 * 1024


def encode(request: HttpRequest, prefix: str, headers: t.Mapping[str, str]) -> bytes:
    """Return a request as it goes over the wire, below the path ``prefix`` and with more headers."""
    sent = {**request.headers, **headers}
    if request.body is not None:
        sent["Content-Length"] = str(len(request.body))
    check_headers(sent)
    lines = [f"{request.method} {prefix}{request.target} HTTP/1.1", *(f"{key}: {text}" for key, text in sent.items())]
    return "\r\n".join([*lines, "", ""]).encode("ascii") + (request.body or b"")


class _Lane:
    """One connection, the numbers of its requests on the way (the oldest first), and the next one, not sent yet."""

    def __init__(self, sock: TimedSocket) -> None:
        self.sock = sock
        self.asked: collections.deque[int] = collections.deque()
        # Bytes of messages that were sent since nothing was on the way.
        self.ahead = 0
        self.held: tuple[int, bytes] | None = None
        self.watched = False
        self.closed = False
        self.answers = Answers()

    def receive(self) -> None:
        """Take what has come; answers that are whole count even when the connection broke after them."""
        while not self.closed:
            try:
                piece = self.sock.raw.recv(CHUNK)
            except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                return
            except OSError:
                piece = b""
            self.closed = not piece
            self.answers.feed(piece)


class Burst:
    """Sends ``count`` messages; ``message(n)`` gives the bytes of one.

    ``depth`` messages at most are on the way over each connection; the server answers them in their order (RFC 9112
    section 9.3.2). ``sent(n)`` is called for each that is sent, ``done(n, response)`` for each answer at once: it says
    whether to go on. What was sent and not answered may or may not have reached the server.

    ``hushed``: a connection went silent on which several messages waited, as where something between does not know
    that they may.
    """

    def __init__(
        self,
        count: int,
        message: Callable[[int], bytes],
        sent: Callable[[int], None],
        done: Callable[[int, HttpResponse], bool],
        depth: int = 1,
    ) -> None:
        self.hushed = False
        self._count = count
        self._waiting: Iterator[int] = iter(range(count))
        self._message = message
        self._sent = sent
        self._done = done
        self._depth = depth
        self._ended = False
        self._selector = selectors.DefaultSelector()

    def run(self, socks: Sequence[TimedSocket], deadline: Deadline, quiet_s: float) -> list[TimedSocket]:
        """Return the connections that can be used again; the others are closed.

        It ends at ``deadline``, or when for ``quiet_s`` seconds nothing has come over any connection.
        """
        good: list[TimedSocket] = []
        with self._selector:
            left = self._count
            for number, sock in enumerate(socks):
                # What is too little to fill all connections is spread over them.
                share = -(-left // (len(socks) - number))
                lane = _Lane(sock)
                sock.arm(deadline, quiet_s)
                self._send(lane, good, min(self._depth, share))
                left -= len(lane.asked)
            while self._selector.get_map():
                left_s = min(quiet_s, deadline.seconds_left())
                ready = self._selector.select(left_s) if left_s else []
                if not ready:
                    for key in list(self._selector.get_map().values()):
                        self.hushed = self.hushed or len(key.data.asked) > 1
                        self._drop(key.data)
                for key, _unused in ready:
                    self._read(key.data, good)
        return good

    def _send(self, lane: _Lane, good: list[TimedSocket], depth: int) -> None:
        """Send what may go over a connection now; one that has nothing more to do is good."""
        try:
            data = b"".join(self._messages(lane, depth))
            if data:
                lane.sock.sendall(data)
                lane.sock.raw.setblocking(False)
        except (OSError, ValueError):
            self._drop(lane)
            return
        if not lane.asked:
            self._forget(lane)
            good.append(lane.sock)
            return
        if not lane.watched:
            self._selector.register(lane.sock.raw, selectors.EVENT_READ, lane)
            lane.watched = True

    def _messages(self, lane: _Lane, depth: int) -> Iterator[bytes]:
        while len(lane.asked) < depth and not self._ended:
            if lane.held is None:
                number = next(self._waiting, -1)
                if number < 0:
                    return
                lane.held = number, self._message(number)
            number, data = lane.held
            # A server that still writes an answer may not read: what does not fit its buffers would wait for ever.
            if lane.asked and lane.ahead + len(data) > _AHEAD:
                return
            lane.held = None
            lane.ahead = (lane.ahead if lane.asked else 0) + len(data)
            lane.asked.append(number)
            self._sent(number)
            yield data

    def _read(self, lane: _Lane, good: list[TimedSocket]) -> None:
        try:
            lane.receive()
            while lane.asked and (response := lane.answers.next()) is not None:
                self._ended = not self._done(lane.asked.popleft(), response) or self._ended
                lane.closed = lane.closed or response.headers.get("connection", "").lower() == "close"
            if lane.closed or not (lane.asked or lane.answers.empty):
                raise ConnectionError("closed, or more than was asked for")
        except (OSError, ValueError):
            self._drop(lane)
            return
        self._send(lane, good, self._depth)

    def _forget(self, lane: _Lane) -> None:
        if lane.watched:
            self._selector.unregister(lane.sock.raw)
            lane.watched = False

    def _drop(self, lane: _Lane) -> None:
        self._forget(lane)
        lane.sock.shut()
