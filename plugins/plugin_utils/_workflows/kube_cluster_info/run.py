# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads what a cluster offers to jobs: its nodes' resources and its storage (``kube_cluster_info``)."""

from __future__ import annotations

import dataclasses
import pathlib
import typing as t
from collections.abc import Mapping

from ..._kube.nodes import capacity, gpu_claims
from ..shared.kube_connection import open_client


def run(options: Mapping[str, t.Any], base: pathlib.Path) -> dict[str, object]:
    """Return the result of ``kube_cluster_info``."""
    client = open_client(options, base)
    nodes = gpu_claims.show_offered(client, client.list(client.resource("v1/Node")).items)
    classes = client.list(client.resource("storage.k8s.io/v1/StorageClass")).items
    return {
        "changed": False,
        "nodes": [str(node["metadata"]["name"]) for node in nodes if capacity.takes_pods(node)],
        "allocatable": capacity.sum_allocatable(nodes),
        "storage": [dataclasses.asdict(item) for item in capacity.read_storage(classes)],
    }
