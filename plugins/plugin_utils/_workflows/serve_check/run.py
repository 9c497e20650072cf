# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Does a trained model answer: its folder, and a server that has it."""

from __future__ import annotations

import dataclasses
import pathlib
import typing as t

from ....module_utils._http.client import HttpClient
from ....module_utils._http.retry import RetryPolicy, Timeouts
from ....module_utils._http.urls import parse_base_url
from ....module_utils._model.checks import Check, build_result
from ....module_utils._model.errors import InputError
from ....module_utils._secrets.auth import bearer
from ....module_utils._secrets.secret import Secret
from .contract import ModelRequest, check_server
from .servable import ServeRules, check_folder


@dataclasses.dataclass(frozen=True, slots=True)
class Server:
    """Where a server is and what it is asked; ``key`` is its API key, where it wants one."""

    url: str
    asked: ModelRequest
    key: Secret | None = None
    timeout_s: float = 60.0


def check_model(folder: pathlib.Path | None, rules: ServeRules, server: Server | None) -> dict[str, t.Any]:
    """Return the result of all checks, with a table of one line each.

    :raises InputError: where neither a folder nor a server is named.
    """
    if folder is None and server is None:
        raise InputError("path", "is missing", "Name the folder of the model (path), a server (url), or both")
    checks = check_folder(folder, rules) if folder else []
    if server:
        checks += check_server(_connect(server), server.asked)
    return {"changed": False, **build_result(checks), "table": [_describe(check) for check in checks]}


def _connect(server: Server) -> HttpClient:
    if not server.asked.model:
        raise InputError("model", "is missing", "Name the model as the server calls it")
    # Without a key there is nothing that plain HTTP could show to others but the prompt.
    base = parse_base_url(server.url, "url", allow_http=server.key is None)
    return HttpClient(
        base._replace(path=base.path.removesuffix("/v1")),
        auth=bearer(server.key) if server.key else None,
        timeouts=Timeouts(read_s=server.timeout_s, total_s=server.timeout_s),
        retry=RetryPolicy(attempts=1),
    )


def _describe(check: Check) -> str:
    return f"{check.name}: {'ok' if check.ok else f'{check.problem}. {check.fix}'}"
