# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Object stores that a program reaches by itself: its variables, and the one store that these can name."""

from __future__ import annotations

import dataclasses
import typing as t

from .....module_utils._model.binding import Binding
from .....module_utils._model.errors import InputError
from ...._services.s3_addresses import S3Keys


@dataclasses.dataclass(frozen=True)
class StoreStream:
    """A part of a job that is streamed: the option that says so, its store, and the variable that has ``address``."""

    option: str
    binding: Binding
    keys: S3Keys
    variable: str
    address: str


def require_one_store(streams: t.Sequence[StoreStream]) -> None:
    """Raise InputError where a job streams from several stores."""
    other = next((item for item in streams if item.binding.name != streams[0].binding.name), None)
    if other is not None:
        raise InputError(
            f"{other.option}.binding",
            f"a job streams from one store, and {streams[0].option} is in {streams[0].binding.name}",
            "Stage the datasets of one of them: AWS_ENDPOINT_URL and the credentials are one set of variables",
        )


def stream_variables(streams: t.Sequence[StoreStream]) -> dict[str, str]:
    """Return what programs need to stream: the addresses, the endpoint and its credentials."""
    if not streams:
        return {}
    binding, keys = streams[0].binding, streams[0].keys
    region = binding.region or "us-east-1"
    secrets = {"AWS_ACCESS_KEY_ID": keys.access_key.reveal(), "AWS_SECRET_ACCESS_KEY": keys.secret_key.reveal()}
    if keys.session_token is not None:
        secrets["AWS_SESSION_TOKEN"] = keys.session_token.reveal()
    plain = {"AWS_ENDPOINT_URL": binding.endpoint, "AWS_REGION": region, "AWS_DEFAULT_REGION": region, **binding.env}
    return {**plain, **secrets, **{item.variable: item.address for item in streams}}


def find_own_ca(streams: t.Sequence[StoreStream]) -> str | None:
    """Return the own CA of the store that a job streams from."""
    return next((item.binding.ca for item in streams), None)
