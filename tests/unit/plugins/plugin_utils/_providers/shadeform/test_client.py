# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The client of Shadeform against scripted answers."""

from __future__ import annotations

import copy
import json

from ansible_collections.muster.training.plugins.plugin_utils._providers.shadeform.client import ShadeformClient
from ansible_collections.muster.training.tests.support.listings import CANARY, listing
from ansible_collections.muster.training.tests.support.scripted_http import Call, Script
from ansible_collections.muster.training.tests.unit.plugins.plugin_utils._providers.connections import TOKEN, access


def test_shadeform_merges_clusters() -> None:
    recorded = listing("shadeform")
    recorded["instances"]["instances"].append(copy.deepcopy(recorded["clusters"]["clusters"][0]["instances"][0]))
    key = {"X-API-KEY": TOKEN}
    calls = [
        Call("GET", "/v1/instances", answer=recorded["instances"], headers=key, without=("Authorization",)),
        Call("GET", "/v1/clusters", answer=recorded["clusters"]),
    ]
    with Script(*calls) as script:
        found = ShadeformClient(access(script)).instances()
    assert [item.get("cluster_id") for item in found] == [None, None] + ["c290f1ee-6c54-4b01-90e6-d701748f0000"] * 2
    assert CANARY not in json.dumps(found)
