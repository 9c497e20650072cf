# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Instances of Vast.ai (``/api/v1`` for listings, ``/api/v0`` for everything else)."""

from __future__ import annotations

import json
from collections.abc import Mapping

from ....module_utils._http.messages import HttpResponse
from ....module_utils._model.errors import TransportError
from ....module_utils._secrets.auth import bearer
from ..connection import TOKEN_VARIABLE, ProviderConnection
from ..listing import read_listing
from ..parsing import (
    JsonObject,
    as_mapping,
    check_count,
    join_texts,
    pick,
    printable,
    read_items,
    read_pages,
    text,
    unique_items,
)

API_URL = "https://console.vast.ai/api"
NAME = "Vast.ai"
PAGE_SIZE = 25
# Listings have a least interval for each endpoint and user; the thresholds seen are 1.0 to 4.5 s.
PACE_S = 1.0
_DETAIL_CHARS = 200
_FOLLOWED = ("next_token", "total_instances", "instances_found", "label_counts")

# extra_env, onstart and jupyter_token hold secrets; image_args may.
FIELDS = (
    "id", "actual_status", "cur_state", "next_state", "intended_status", "label", "image_uuid", "image_runtype",
    "status_msg", "public_ipaddr", "ssh_host", "ssh_port", "machine_id", "host_id", "start_date", "end_date",
    "cpu_arch", "cpu_cores", "cpu_cores_effective", "cpu_ram", "gpu_name", "gpu_ram", "num_gpus", "disk_space",
    "direct_port_count", "ports", "static_ip", "geolocation", "verification", "is_bid", "dph_total", "reliability2",
    "bw_nvlink", "cluster_id", "template_name",
)  # fmt: skip


def error_detail(body: object) -> str:
    """Return the error's code and message; a 429 has ``detail`` instead."""
    error = as_mapping(body)
    return join_texts(error.get("error"), error.get("msg") or error.get("message") or error.get("detail"))


def read_answer(data: object, key: str) -> list[JsonObject]:
    """Return the objects under ``key``; the API tells an error by ``success`` in the body of a 200, too."""
    detail = error_detail(data)
    if as_mapping(data).get("success") is False and detail:
        raise TransportError(f"{NAME}: {printable(detail)[:_DETAIL_CHARS]}")
    return read_items(data, key, NAME)


def may_retry(response: HttpResponse) -> bool:
    """The daily search quota ends at midnight UTC: no wait within a play changes it."""
    return b"search_quota_exceeded" not in response.body


def filter_text(filters: Mapping[str, object]) -> str:
    """Return filters as the API takes them, such as ``{"label": {"eq": "x"}}``; empty for none."""
    return json.dumps(filters, separators=(",", ":"), sort_keys=True) if filters else ""


class VastClient:
    """One Vast.ai account. ``listing`` calls ``/api/v1``, ``http`` the rest; paths on the wire end with a slash."""

    def __init__(self, access: ProviderConnection) -> None:
        base, auth = access.base(API_URL), bearer(access.token)
        self.http = access.http(base.under("/v0", "/v1"), auth, error_detail=error_detail, may_retry=may_retry)
        self.listing = access.http(
            base.under("/v1", "/v0"), auth, error_detail=error_detail, may_retry=may_retry, pace_s=PACE_S
        )
        self.account = access.account
        self._deadline = access.listing_deadline

    def instances(self, select: str = "") -> list[JsonObject]:
        """Return every instance, whitelisted; ``select`` is a filter for the server (see :func:`filter_text`).

        A new instance may be missing for up to a minute.
        """
        query = [("limit", str(PAGE_SIZE)), *([("select_filters", select)] if select else [])]

        total: object = None

        def fetch(cursor: str | None) -> tuple[list[JsonObject], str | None]:
            nonlocal total
            pages = [*query, ("after_token", cursor)] if cursor else query
            items, data = read_listing(self.listing, "/instances/", "instances", NAME, pages, _FOLLOWED)
            total = data.get("total_instances")
            return items, text(data.get("next_token"))

        listed = unique_items(read_pages(fetch, NAME, self._deadline()), "id", NAME)
        check_count(listed, total, NAME)
        return [_instance(item) for item in listed]


def _instance(raw: JsonObject) -> JsonObject:
    # Of the environment only the lease's token is kept: a label may be changed, and the rest may be secret.
    listed = raw.get("extra_env")
    pairs = [item for item in listed if isinstance(item, list)] if isinstance(listed, list) else []
    token = next((pair[1] for pair in pairs if len(pair) == 2 and pair[0] == TOKEN_VARIABLE), None)
    return {**pick(raw, FIELDS), "muster_token": text(token)}
