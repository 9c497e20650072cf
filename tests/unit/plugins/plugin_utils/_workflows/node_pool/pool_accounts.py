# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Two fake providers behind the options of node_pool, for tests."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import typing as t
from collections.abc import Iterator

import pytest
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from ansible_collections.muster.training.plugins.action.node_pool import ActionModule as PoolFace
from ansible_collections.muster.training.plugins.plugin_utils._workflows.node_pool import absent as node_pool_absent
from ansible_collections.muster.training.plugins.plugin_utils._workflows.node_pool import present as node_pool_present
from ansible_collections.muster.training.plugins.plugin_utils._workflows.node_pool.accounts import Externals
from ansible_collections.muster.training.tests.fakes.cycle import KEY
from ansible_collections.muster.training.tests.fakes.lambda_cloud import FakeLambda
from ansible_collections.muster.training.tests.fakes.shadeform import FakeShadeform
from ansible_collections.muster.training.tests.fakes.sim_provider import SimProber
from ansible_collections.muster.training.tests.fakes.virtual import InlineScheduler, VirtualClock
from ansible_collections.muster.training.tests.fakes.wire import TOKEN, FakeWire

SECRETS = (TOKEN, "canary")


class Place:
    """A controller with a state home, and the fakes of two providers."""

    def __init__(self, folder: pathlib.Path, lambda_url: str, shade_url: str, clock: VirtualClock) -> None:
        self.folder = folder
        self.clock = clock
        self.prober = SimProber()
        self.urls = {"lambda": lambda_url, "shadeform": shade_url}
        externals = Externals(clock, FakeWire(clock), {})
        self.context = node_pool_present.Context(folder, False, externals, InlineScheduler(clock), self.prober)

    def providers(self, *names: str) -> list[dict[str, t.Any]]:
        return [{"name": name, "api_token": TOKEN, "api_url": self.urls[name]} for name in names]

    def pool(self, check: bool = False, **options: t.Any) -> dict[str, t.Any]:
        given: dict[str, t.Any] = {
            "cluster": "lab",
            "pool": "h100",
            "count": 2,
            "providers": self.providers("lambda"),
            "candidates": [{"provider": "lambda", "gpu_model": "H100"}],
            "ssh_public_key": KEY,
            "state_home": {"path": str(self.folder / "state")},
            **options,
        }
        checked = parse(PoolFace, given)
        context = dataclasses.replace(self.context, check=check)
        run = node_pool_absent.ensure_absent if given.get("state") == "absent" else node_pool_present.ensure_present
        result = run(checked, context)
        text = json.dumps(result)
        assert not any(secret in text for secret in SECRETS)
        return result

    @property
    def state(self) -> pathlib.Path:
        return self.folder / "state" / "lab"


def parse(face: t.Any, options: dict[str, t.Any]) -> dict[str, t.Any]:
    found = ArgumentSpecValidator(face.OPTIONS, **face.RULES).validate(options)
    assert not found.error_messages, found.error_messages
    return dict(found.validated_parameters)


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def lambda_api(clock: VirtualClock) -> FakeLambda:
    return FakeLambda(clock)


@pytest.fixture
def shade_api(clock: VirtualClock) -> FakeShadeform:
    return FakeShadeform(clock)


@pytest.fixture
def place(
    tmp_path: pathlib.Path, clock: VirtualClock, lambda_api: FakeLambda, shade_api: FakeShadeform
) -> Iterator[Place]:
    with lambda_api.loopback() as first, shade_api.loopback() as second:
        yield Place(tmp_path, first, second, clock)
    assert lambda_api.violations == [] and shade_api.violations == []
