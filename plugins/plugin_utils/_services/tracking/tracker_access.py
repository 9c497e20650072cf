# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The credentials of a tracker, tried by the controller: nodes only look whether they reach it."""

from __future__ import annotations

import json
import secrets
import typing as t

from ....module_utils._http.messages import HttpRequest, json_request
from ....module_utils._model.binding import Binding
from ....module_utils._model.errors import ApiError, InputError, RefusedError, TransportError
from ..keyed_call import Keys, call
from .trackers import tracker_of

# More than a proxy takes that nothing was set for: 1 MiB (nginx, client_max_body_size).
_FILE_BYTES: t.Final = 2 << 20
_TOO_LARGE: t.Final = 413


def check_access(binding: Binding, keys: Keys, option: str) -> str:
    """Refuse credentials that the tracker does not take; return why they could not be tried, empty where they were.

    :raises InputError: when it refuses them.
    :raises RefusedError: when what answers is not the API of such a tracker.
    """
    tracker, where = tracker_of(binding), binding.endpoint
    is_wandb = binding.provider == "wandb"
    asked = (
        json_request("POST", tracker.path, body=json.loads(tracker.body), idempotent=True)
        if is_wandb
        else json_request("POST", "/api/2.0/mlflow/experiments/search", body={"max_results": 1}, idempotent=True)
    )
    try:
        answer = call(binding, keys, asked)
    except ApiError as exc:
        if exc.status in (401, 403):
            problem = f"{tracker.title} at {where} refuses the credentials (HTTP {exc.status})"
            raise InputError(f"{option}.secret_ref", problem, "Check them, and what they may do there") from None
        raise RefusedError(
            f"{option}: the API of {tracker.title} at {where} answered {exc.status}", "Check endpoint"
        ) from None
    except TransportError as exc:
        return exc.message
    if is_wandb and not ((answer.data or {}).get("data") or {}).get("viewer"):
        problem = f"{tracker.title} at {where} does not know the key"
        raise InputError(f"{option}.secret_ref", problem, "Check api_key, and that it is one of this server")
    return ""


def check_artifacts(binding: Binding, keys: Keys, option: str) -> None:
    """Refuse an MLflow that takes figures and cannot store files: one of 2 MiB is stored and deleted.

    One that stores none for this user, or at all, is left to the programs that need none.

    :raises RefusedError: when what is behind it does not take the file.
    """
    path = f"/api/2.0/mlflow-artifacts/artifacts/muster-check-{secrets.token_hex(6)}"
    kind = {"Content-Type": "application/octet-stream"}
    try:
        call(binding, keys, HttpRequest("PUT", path, headers=kind, body=bytes(_FILE_BYTES)))
        call(binding, keys, HttpRequest("DELETE", path))
    except ApiError as exc:
        if exc.status == _TOO_LARGE:
            problem = f"{option}: a proxy before MLflow at {binding.endpoint} takes no file of {_FILE_BYTES >> 20} MiB"
            fix = "Raise its limit (nginx: client_max_body_size 0)"
            raise RefusedError(f"{problem} (HTTP {_TOO_LARGE})", fix) from None
        if exc.status >= 500:
            problem = f"{option}: MLflow at {binding.endpoint} cannot store files (HTTP {exc.status})"
            raise RefusedError(problem, "Look at its log: its bucket, or the keys of it, may be gone") from None
    except TransportError as exc:
        raise RefusedError(f"{option}: MLflow at {binding.endpoint}: {exc.message}", exc.fix) from None
