# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The real MLflow on loopback, where ``MUSTER_MLFLOW_PYTHON`` names a Python that has it."""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import os
import pathlib
import ssl
import subprocess
import time
import typing as t
import urllib.parse
import urllib.request

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._services.component import certificate_of
from ansible_collections.muster.training.plugins.plugin_utils._services.tracking import mlflow

# Its first start makes its database.
_START_S = 240.0


def python() -> str:
    """Return the interpreter, empty without one."""
    return os.environ.get("MUSTER_MLFLOW_PYTHON", "")


def require() -> None:
    """Skip a test where there is no MLflow."""
    if not python():
        pytest.skip("MUSTER_MLFLOW_PYTHON names no Python with mlflow: it takes 0.9 GB")


@contextlib.contextmanager
def serving(
    words: t.Sequence[str], variables: t.Mapping[str, str], folder: pathlib.Path, ready: str, ca: str = ""
) -> t.Iterator[subprocess.Popen[bytes]]:
    """Run ``mlflow`` with these words and these variables alone while the context is open."""
    require()
    program, log = pathlib.Path(python()).with_name("mlflow"), folder / "mlflow.log"
    with log.open("wb") as out:
        env = {"PATH": os.environ["PATH"], **variables}
        process = subprocess.Popen([program, *words], cwd=folder, env=env, stdout=out, stderr=out)
    try:
        context, end = ssl.create_default_context(cadata=ca or None), time.monotonic() + _START_S
        while not _answers(ready, context):
            assert process.poll() is None and time.monotonic() < end, log.read_text()[-3000:]
            time.sleep(0.2)
        yield process
    finally:
        process.terminate()
        process.wait(30)


def ask(endpoint: str, credentials: t.Mapping[str, str], host: str) -> int:
    """Return the status with which the API answers its user under the name of ``host``."""
    parts = urllib.parse.urlsplit(endpoint)
    context = ssl.create_default_context(cadata=certificate_of(credentials))
    connection = http.client.HTTPSConnection(str(parts.hostname), parts.port, timeout=30, context=context)
    login = base64.b64encode(f"{credentials[mlflow.USER]}:{credentials[mlflow.PASSWORD]}".encode()).decode()
    headers = {"Host": host, "Authorization": f"Basic {login}", "Content-Type": "application/json"}
    try:
        connection.request("POST", "/api/2.0/mlflow/experiments/search", b'{"max_results": 1}', headers)
        return connection.getresponse().status
    finally:
        connection.close()


def call(endpoint: str, path: str, value: t.Any) -> t.Any:
    """Return the answer of the API of a server without a login."""
    asked = urllib.request.Request(f"{endpoint}/api/2.0/mlflow/{path}", json.dumps(value).encode())
    asked.add_header("Content-Type", "application/json")
    with urllib.request.urlopen(asked, timeout=60) as answer:
        return json.loads(answer.read())


def _answers(url: str, context: ssl.SSLContext) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2, context=context) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
