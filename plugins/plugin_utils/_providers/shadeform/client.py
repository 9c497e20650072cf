# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Instances and clusters that Shadeform rents from other clouds (API 1.0)."""

from __future__ import annotations

from ....module_utils._secrets.auth import header
from ..connection import ProviderConnection
from ..listing import read_listing
from ..parsing import JsonObject, as_mapping, join_texts, pick, read_items, unique_items

API_URL = "https://api.shadeform.ai/v1"
NAME = "Shadeform"

# launch_configuration holds environments, scripts and registry passwords.
FIELDS = (
    "id", "cloud", "region", "shade_instance_type", "cloud_instance_type", "cloud_assigned_id", "shade_cloud",
    "name", "configuration", "ip", "ssh_user", "ssh_port", "status", "status_details", "cost_estimate",
    "hourly_price", "tags", "created_at", "active_at", "deleted_at", "port_mappings",
)  # fmt: skip


def error_detail(body: object) -> str:
    """Return the message of an error answer."""
    error = as_mapping(body)
    return join_texts(error.get("error_code"), error.get("error") or error.get("message"))


class ShadeformClient:
    """One Shadeform account."""

    def __init__(self, access: ProviderConnection) -> None:
        self.http = access.http(access.base(API_URL), header("X-API-KEY", access.token), error_detail=error_detail)
        self.account = access.account

    def instances(self) -> list[JsonObject]:
        """Return every instance, whitelisted; members of clusters carry ``cluster_id``. The API has no pages."""
        listed, _answer = read_listing(self.http, "/instances", "instances", NAME)
        instances = [pick(item, FIELDS) for item in listed]
        for cluster in read_listing(self.http, "/clusters", "clusters", NAME)[0]:
            members = read_items(cluster, "instances", NAME)
            instances += [{**pick(item, FIELDS), "cluster_id": cluster.get("id")} for item in members]
        return unique_items(instances, "id", NAME)
