# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# ruff: noqa: F401, F811  # fixtures are imported
"""Accounts: credentials from options and the environment."""

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


def test_an_environment_variable_is_enough(place: Place) -> None:
    externals = place.context.externals._replace(environ={"LAMBDA_API_KEY": TOKEN})
    options = parse(OfferFace, {"providers": [{**place.providers("lambda")[0], "api_token": None}]})
    assert node_offer_info.find_offers(options, externals)["found"] == 1
    with pytest.raises(InputError, match="does not name a provider"):
        node_offer_info.find_offers(parse(OfferFace, {}), place.context.externals)
