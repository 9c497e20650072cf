# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Commands in containers: what goes in and comes out, exit codes, refusals, and connections that are lost."""

from __future__ import annotations

import pathlib
import sys
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import RefusedError, TransportError
from ansible_collections.muster.training.plugins.plugin_utils._kube.api import pod_exec
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.client import Client
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.connect import connect
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.errors import KubeError
from ansible_collections.muster.training.tests.fakes import exec_server

HERE = pod_exec.Container("team", "reader-x", "node")
ECHO = "import sys; line = sys.stdin.readline(); print(len(line), end=''); print('said', file=sys.stderr); sys.exit({})"


@pytest.fixture
def server() -> t.Iterator[exec_server.ExecServer]:
    with exec_server.running() as found:
        yield found


@pytest.fixture
def client(server: exec_server.ExecServer, tmp_path: pathlib.Path) -> Client:
    (tmp_path / "token").write_text("tok-canary-1")
    return connect({"host": server.url, "token_file": str(tmp_path / "token")})


def ask(client: Client, code: str, data: bytes = b"\n") -> tuple[int, str, str]:
    return pod_exec.exec_in_pod(client, HERE, [sys.executable, "-c", code], data, 20.0)


@pytest.mark.parametrize("size", [1, 100, 40_000, 200_000])
def test_input_goes_in_whole_and_both_outputs_come_out(
    server: exec_server.ExecServer, client: Client, size: int
) -> None:
    assert ask(client, ECHO.format(0), b"x" * (size - 1) + b"\n") == (0, str(size), "said\n")
    path, query, token = server.asked[-1]
    assert path == "/api/v1/namespaces/team/pods/reader-x/exec" and token == "Bearer tok-canary-1"
    assert query["container"] == ["node"] and query["command"][0] == sys.executable and query["stdin"] == ["true"]


def test_much_output_comes_whole(client: Client) -> None:
    code, out, _err = ask(client, "print('0123456789' * 1_000_000, end='')")
    assert code == 0 and out == "0123456789" * 1_000_000


def test_an_exit_code_is_the_commands_own(client: Client) -> None:
    assert ask(client, ECHO.format(7)) == (7, "1", "said\n")


def test_a_refusal_is_the_api_servers(server: exec_server.ExecServer, client: Client) -> None:
    server.refuse = [403]
    with pytest.raises(KubeError, match="exec in Pod team/reader-x: .*not you"):
        ask(client, "")


def test_a_rejected_credential_is_read_again_once(
    server: exec_server.ExecServer, client: Client, tmp_path: pathlib.Path
) -> None:
    server.refuse = [401]
    client.transport.credential.headers()
    (tmp_path / "token").write_text("tok-canary-2")
    assert ask(client, ECHO.format(0))[0] == 0 and server.asked[-1][2] == "Bearer tok-canary-2"
    server.refuse = [401]
    with pytest.raises(KubeError, match="401"):
        ask(client, "")


def test_a_connection_that_is_lost_is_no_end(server: exec_server.ExecServer, client: Client) -> None:
    server.cut = True
    with pytest.raises(TransportError, match="the connection was lost"):
        ask(client, "import time; print('begun', flush=True); time.sleep(0.5)")


def test_a_server_that_is_away(client: Client) -> None:
    away = connect({"host": "http://127.0.0.1:1", "token": "tok-canary-1"})
    with pytest.raises(TransportError, match="exec in Pod team/reader-x: no connection"):
        ask(away, "")


def test_the_library_is_named_where_it_is_missing(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "websocket", None)
    with pytest.raises(
        RefusedError, match="websocket-client is not installed on this machine. Install the .* kubernetes"
    ):
        ask(client, "")
