# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs a command in a container, as ``kubectl exec`` does: over a WebSocket through the API server."""

from __future__ import annotations

import io
import json
import os
import socket
import typing as t
import urllib.parse

from ....module_utils._http.clock import Deadline
from ....module_utils._http.errors import ExchangeError
from ....module_utils._http.messages import HttpResponse
from ....module_utils._http.sockets import connect
from ....module_utils._http.tls import TlsOptions
from ....module_utils._http.urls import Proxy, proxy_for
from ....module_utils._http.version import USER_AGENT
from ....module_utils._model.errors import RefusedError, TransportError
from .client import Client
from .errors import refusal_error
from .transport import FIRST

if t.TYPE_CHECKING:
    import websocket

# A message begins with the number of its channel: https://kubernetes.io/docs (the protocol v4.channel.k8s.io).
_PROTOCOL: t.Final = "v4.channel.k8s.io"
_STDIN: t.Final = b"\0"
_STDOUT, _STDERR, _STATUS = 1, 2, 3
_FRAME: t.Final = 32 << 10


class Container(t.NamedTuple):
    """A container of a pod."""

    namespace: str
    pod: str
    name: str


def exec_in_pod(
    client: Client, container: Container, argv: t.Sequence[str], stdin: bytes, silence_s: float
) -> tuple[int, str, str]:
    """Run a command and return its exit code, output and error output.

    :param stdin: its standard input, which stays open behind it.
    :param silence_s: seconds without any output after which the connection counts as lost.
    :raises KubeError: where the API server refuses it.
    :raises TransportError: when the connection is lost.
    """
    what = f"exec in Pod {container.namespace}/{container.pod}"
    connection = _open(client, what, container, argv, silence_s)
    try:
        for start in range(0, len(stdin), _FRAME):
            connection.send_binary(_STDIN + stdin[start : start + _FRAME])
        return _read_to_end(connection, what)
    except (OSError, _library().WebSocketException) as exc:
        raise TransportError(f"{what}: the connection was lost ({exc})", "Run it again") from None
    finally:
        connection.close(timeout=1)


def _library() -> t.Any:
    # Late: nothing but this needs it.
    try:
        import websocket as library
    except ImportError:
        raise RefusedError(
            "the Python package websocket-client is not installed on this machine",
            "Install the Python package kubernetes, which brings it",
        ) from None
    return library


def _open(
    client: Client, what: str, container: Container, argv: t.Sequence[str], silence_s: float
) -> websocket.WebSocket:
    library, transport = _library(), client.transport
    query = [("container", container.name), *((name, "true") for name in ("stdin", "stdout", "stderr"))]
    query += [("command", word) for word in argv]
    path = f"/api/v1/namespaces/{container.namespace}/pods/{container.pod}/exec?{urllib.parse.urlencode(query)}"
    origin = transport.server.origin
    address = f"{'wss' if origin.scheme == 'https' else 'ws'}://{origin.authority}{transport.server.path}{path}"
    for attempt in (1, 2):
        headers = [f"{name}: {value}" for name, value in transport.credential.headers().items()]
        headers.append(f"User-Agent: {USER_AGENT}")
        raw = _dial(client, what)
        raw.settimeout(silence_s)
        try:
            return t.cast(
                "websocket.WebSocket",
                library.create_connection(
                    address,
                    timeout=silence_s,
                    socket=raw,
                    header=headers,
                    subprotocols=[_PROTOCOL],
                    suppress_origin=True,
                ),
            )
        except library.WebSocketBadStatusException as exc:
            raw.close()
            if exc.status_code == 401 and attempt == 1 and transport.credential.refresh():
                continue
            if exc.status_code == 401:
                raise transport.unauthorized_error(what) from None
            raise refusal_error(what, HttpResponse(exc.status_code, {}, exc.resp_body or b"")) from None
        except (OSError, library.WebSocketException) as exc:
            raw.close()
            raise TransportError(f"{what}: no answer ({exc})", "Check the connection to the API server") from None
    raise transport.unauthorized_error(what)


def _dial(client: Client, what: str) -> socket.socket:
    """Return a connection to the API server, by the proxy and with the certificates of its other connections."""
    transport = client.transport
    access, origin = transport.access, transport.server.origin
    proxy = access.proxy if isinstance(access.proxy, Proxy) else proxy_for(origin, access.proxy, os.environ)
    pem = transport.credential.client_pem
    tls = TlsOptions(verify=access.verify, ca_pem=access.ca_pem, client_pem=pem, server_name=access.server_name)
    try:
        limit = Deadline(transport.clock, FIRST.total_s)
        return connect(origin, proxy, tls.context, limit, FIRST, access.server_name).raw
    except (OSError, ExchangeError) as exc:
        raise TransportError(f"{what}: {exc}", "Check the connection to the API server") from None


def _read_to_end(connection: websocket.WebSocket, what: str) -> tuple[int, str, str]:
    printed = {_STDOUT: io.BytesIO(), _STDERR: io.BytesIO()}
    status: dict[str, t.Any] | None = None
    while status is None:
        data = t.cast(bytes, connection.recv())
        if not data:
            raise TransportError(f"{what}: the connection was lost before the command had ended", "Run it again")
        channel, content = data[0], data[1:]
        if channel in printed:
            printed[channel].write(content)
        elif channel == _STATUS:
            status = json.loads(content)
    out, err = (stream.getvalue().decode(errors="replace") for stream in printed.values())
    return _exit_code(status), out, err or str(status.get("message") or "")


def _exit_code(status: t.Mapping[str, t.Any]) -> int:
    """Return the exit code of a ``Status``: 0 for success, 126 where the command could not be started."""
    if status.get("status") == "Success":
        return 0
    causes = (status.get("details") or {}).get("causes") or []
    return next((int(item["message"]) for item in causes if item.get("reason") == "ExitCode"), 126)
