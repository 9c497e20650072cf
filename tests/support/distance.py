# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A server of this machine as if it were away: a relay that passes everything on later.

The kernels of test machines have no netem. Bytes take half a round trip each way, and those with which a client begins
one more round trip, for the handshake of TCP that loopback answered at once. Bandwidth is not limited.
"""

from __future__ import annotations

import asyncio
import selectors
import threading
import typing as t


class Distance:
    """Listens on a port of 127.0.0.1 and relays to ``port``, ``round_trip_s`` away; a context manager."""

    def __init__(self, port: int, round_trip_s: float) -> None:
        self.target, self.round_trip_s = port, round_trip_s
        self.port = 0
        self.connections = 0
        # epoll and poll round what is waited for up to whole milliseconds.
        self._loop = asyncio.SelectorEventLoop(selectors.SelectSelector())
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True, name="distance")

    def __enter__(self) -> t.Self:
        self._thread.start()
        server = self._run(asyncio.start_server(self._relay, "127.0.0.1", 0))
        self.port = server.sockets[0].getsockname()[1]
        return self

    def __exit__(self, *_unused: object) -> None:
        self._run(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)
        self._loop.close()

    def _run(self, work: t.Coroutine[t.Any, t.Any, t.Any]) -> t.Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    async def _end(self) -> None:
        tasks = asyncio.all_tasks(self._loop) - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _relay(self, near: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        self.connections += 1
        far, server = await asyncio.open_connection("127.0.0.1", self.target)
        try:
            await asyncio.gather(self._pass(near, server, self.round_trip_s), self._pass(far, client, 0.0))
        finally:
            client.close()
            server.close()

    async def _pass(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, first_s: float) -> None:
        due: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

        async def deliver() -> None:
            while True:
                when, data = await due.get()
                await asyncio.sleep(max(0.0, when - self._loop.time()))
                if not data:
                    sink.write_eof()
                    return
                sink.write(data)

        later = self._loop.time() + first_s
        sender = asyncio.ensure_future(deliver())
        try:
            data = b"start"
            while data:
                try:
                    data = await source.read(256 * 1024)
                except ConnectionError:
                    data = b""
                due.put_nowait((max(self._loop.time(), later) + self.round_trip_s / 2, data))
            await sender
        except (ConnectionError, OSError):
            pass
        finally:
            sender.cancel()
