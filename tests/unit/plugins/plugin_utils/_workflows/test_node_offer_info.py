# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# ruff: noqa: F401, F811  # fixtures are imported
"""node_offer_info: offers of all providers by price; a provider that does not answer is named."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import typing as t
from collections.abc import Iterator

import pytest
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from ansible_collections.muster.training.plugins.action.node_offer_info import ActionModule as OfferFace
from ansible_collections.muster.training.plugins.action.node_pool import ActionModule as PoolFace
from ansible_collections.muster.training.plugins.module_utils._model.errors import (
    InputError,
    MusterError,
    ProviderError,
)
from ansible_collections.muster.training.plugins.module_utils._model.timestamps import format_time
from ansible_collections.muster.training.plugins.plugin_utils._provision.ledger.ledger_store import (
    LedgerWriter,
    read_ledger,
)
from ansible_collections.muster.training.plugins.plugin_utils._workflows import node_offer_info
from ansible_collections.muster.training.plugins.plugin_utils._workflows.node_pool import absent as node_pool_absent
from ansible_collections.muster.training.plugins.plugin_utils._workflows.node_pool import present as node_pool_present
from ansible_collections.muster.training.plugins.plugin_utils._workflows.node_pool.accounts import Externals
from ansible_collections.muster.training.tests.fakes.cycle import KEY
from ansible_collections.muster.training.tests.fakes.lambda_cloud import FakeLambda
from ansible_collections.muster.training.tests.fakes.shadeform import FakeShadeform
from ansible_collections.muster.training.tests.fakes.sim_provider import SimProber
from ansible_collections.muster.training.tests.fakes.tailscale import FakeTailscale
from ansible_collections.muster.training.tests.fakes.virtual import InlineScheduler, VirtualClock
from ansible_collections.muster.training.tests.fakes.wire import TOKEN, FakeWire
from ansible_collections.muster.training.tests.unit.plugins.plugin_utils._workflows.node_pool.pool_accounts import (
    Place,
    clock,
    lambda_api,
    parse,
    place,
    shade_api,
)


def test_offers_of_all_providers_by_price(place: Place) -> None:
    options = {"providers": place.providers("lambda", "shadeform"), "gpu_model": "H100", "k3s_capable": True}
    result = node_offer_info.find_offers(parse(OfferFace, options), place.context.externals)
    assert [(item["provider"], item["price_usd_per_hour"]) for item in result["offers"]] == [
        ("shadeform", 2.4),
        ("lambda", 2.99),
    ]
    assert result["found"] == 2 and result["problems"] == []
    assert json.dumps(result)


def test_a_provider_that_does_not_answer_is_named(place: Place) -> None:
    broken = {"name": "shadeform", "api_token": TOKEN, "api_url": "http://127.0.0.1:1"}
    options = parse(OfferFace, {"providers": [*place.providers("lambda"), broken]})
    result = node_offer_info.find_offers(options, place.context.externals)
    assert [item["provider"] for item in result["problems"]] == ["shadeform"]
    assert len(result["offers"]) == 1
    with pytest.raises(ProviderError):
        node_offer_info.find_offers(parse(OfferFace, {"providers": [broken]}), place.context.externals)
