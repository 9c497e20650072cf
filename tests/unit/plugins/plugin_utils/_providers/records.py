# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Records of the stored listings, for tests of the mappings."""

from __future__ import annotations

import datetime
import typing as t

from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.plugin_utils._providers import node_record
from ansible_collections.muster.training.plugins.plugin_utils._providers.coreweave import mapping as coreweave
from ansible_collections.muster.training.plugins.plugin_utils._providers.lambda_cloud import mapping as lambda_cloud
from ansible_collections.muster.training.plugins.plugin_utils._providers.runpod import mapping as runpod
from ansible_collections.muster.training.plugins.plugin_utils._providers.shadeform import mapping as shadeform
from ansible_collections.muster.training.plugins.plugin_utils._providers.tailscale import mapping as tailscale
from ansible_collections.muster.training.plugins.plugin_utils._providers.vastai import mapping as vastai
from ansible_collections.muster.training.tests.support.listings import listing

NOW = datetime.datetime(2026, 11, 21, 10, 0, tzinfo=datetime.UTC)


def to_device(raw: dict[str, t.Any], account: str) -> node_record.ProviderHost:
    return tailscale.to_host(raw, account, NOW)


MAPPINGS: dict[
    str, tuple[t.Callable[[dict[str, t.Any], str], node_record.ProviderHost], list[dict[str, t.Any]], str]
] = {
    "lambda": (lambda_cloud.to_host, listing("lambda")["data"], "lambda_"),
    "runpod": (runpod.to_host, listing("runpod")["pods"]["pods"], "runpod_"),
    "vastai": (vastai.to_host, listing("vastai"), "vastai_"),
    "shadeform": (shadeform.to_host, listing("shadeform")["instances"]["instances"], "shadeform_"),
    "coreweave": (coreweave.to_host, listing("coreweave")["clusters"]["items"], "coreweave_"),
    "tailscale": (to_device, listing("tailscale")["devices"], "tailscale_"),
}


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 10**12) | st.floats() | st.text(max_size=12) | st.just("::1%eth0"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)


def one(name: str, index: int) -> tuple[node_record.ProviderHost, dict[str, t.Any]]:
    mapping, raws, _prefix = MAPPINGS[name]
    host = mapping(raws[index], "acc")
    return host, host.record
