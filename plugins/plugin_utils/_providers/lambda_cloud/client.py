# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Instances of Lambda Cloud (API 1.8 to 1.10, OpenAPI 3.1)."""

from __future__ import annotations

from ....module_utils._secrets.auth import bearer
from ..connection import ProviderConnection
from ..listing import read_listing
from ..parsing import JsonObject, as_mapping, join_texts, pick, unique_items

API_URL = "https://cloud.lambda.ai/api/v1"
NAME = "Lambda"
# Documented: one request a second over the whole account (launches have a pace of their own, 12 s).
PACE_S = 1.0

# jupyter_token and jupyter_url open a notebook on the machine and are never kept.
FIELDS = (
    "id", "name", "ip", "private_ip", "status", "region", "instance_type", "hostname", "tags", "ssh_key_names",
    "file_system_names", "is_reserved",
)  # fmt: skip


def error_detail(body: object) -> str:
    """Return code and message of ``{"error": {...}}``; the suggestion repeats the message."""
    error = as_mapping(as_mapping(body).get("error"))
    return join_texts(error.get("code"), error.get("message"))


class LambdaClient:
    """One Lambda account; calls are a second apart."""

    def __init__(self, access: ProviderConnection) -> None:
        base = access.base(API_URL)
        self.http = access.http(base, bearer(access.token), error_detail=error_detail, pace_s=PACE_S)
        self.account = access.account

    def instances(self, cluster_id: str = "") -> list[JsonObject]:
        """Return every instance, whitelisted, or those of one 1-Click Cluster (API 1.10). The API has no pages."""
        query = [("cluster_id", cluster_id)] if cluster_id else ()
        listed = unique_items(read_listing(self.http, "/instances", "data", NAME, query)[0], "id", NAME)
        return [{**pick(item, FIELDS), **({"cluster_id": cluster_id} if cluster_id else {})} for item in listed]
