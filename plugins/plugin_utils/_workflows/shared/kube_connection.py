# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What all runners that talk to an API server share: the options of the connection."""

from __future__ import annotations

import json
import pathlib
import typing as t
from collections.abc import Mapping

from ....module_utils._http.messages import HttpRequest, decode_json
from ....module_utils._http.version import USER_AGENT
from ..._kube.api import kubeconfig
from ..._kube.api.client import Client
from ..._kube.api.connect import connect

Dict = dict[str, t.Any]
ReportLine = t.Callable[[str], None]
CONNECTION: dict[str, Dict] = {
    "kubeconfig": {"type": "raw"},
    "context": {"type": "str"},
    "host": {"type": "str"},
    "token": {"type": "str", "no_log": True},
    "token_file": {"type": "path"},
    "client_cert": {"type": "path"},
    "client_key": {"type": "path", "no_log": False},
    "ca_path": {"type": "path"},
    "server_name": {"type": "str"},
    "validate_certs": {"type": "bool"},
    "proxy": {"type": "str"},
    "cluster_id": {"type": "str"},
    "patience_s": {"type": "int", "default": 360},
}
_PATHS = ("token_file", "client_cert", "client_key", "ca_path")


def open_client(
    options: Mapping[str, t.Any], base: pathlib.Path, tell: ReportLine | None = None, *, context: t.Any = None
) -> Client:
    """Return the client that ``options`` describe; relative paths are relative to ``base``.

    :param tell: gets a line for people when a server that has answered is away, and when it is back.
    :param context: the kubeconfig's context that a job or a run's record names; one that ``options`` name goes before.
    """
    wanted = select_connection(options, base)
    client = connect({**wanted, "context": wanted["context"] or context})
    if tell is not None:
        client.transport.stats.report = tell
    return client


def post_review(client: Client, what: str, path: str, body: Mapping[str, t.Any]) -> t.Any:
    """Return the answer to a question that is put as an object without a name (a review, a token request).

    An answer that was lost is asked for again: nothing is made by asking.
    """
    headers = {"Accept": "application/json", "Content-Type": "application/json", "User-Agent": USER_AGENT}
    request = HttpRequest("POST", path, (), headers, json.dumps(body).encode(), True)
    return decode_json(client.transport.send(what, request).body)


def select_connection(options: Mapping[str, t.Any], base: pathlib.Path) -> Dict:
    """Return the options of the connection among ``options``; relative paths are relative to ``base``."""
    found: Dict = {key: options.get(key) for key in CONNECTION}
    for key in _PATHS:
        if found[key]:
            found[key] = str(base / pathlib.Path(found[key]).expanduser())
    found["kubeconfig"] = kubeconfig.parse_text(found["kubeconfig"])
    if isinstance(found["kubeconfig"], str):
        parts = [part for part in found["kubeconfig"].split(":") if part]
        found["kubeconfig"] = ":".join(str(base / pathlib.Path(part).expanduser()) for part in parts)
    return found
