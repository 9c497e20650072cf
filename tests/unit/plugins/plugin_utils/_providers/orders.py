# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Orders to a scripted provider, for tests of the create calls."""

from __future__ import annotations

import typing as t

from ansible_collections.muster.training.plugins.module_utils._model.offer import Offer, Order
from ansible_collections.muster.training.plugins.module_utils._secrets.secret import Secret
from ansible_collections.muster.training.plugins.plugin_utils._providers.connection import ProviderConnection
from ansible_collections.muster.training.plugins.plugin_utils._providers.lambda_cloud.provision import LambdaProvider
from ansible_collections.muster.training.tests.fakes.cycle import KEY
from ansible_collections.muster.training.tests.fakes.virtual import VirtualClock
from ansible_collections.muster.training.tests.fakes.wire import TOKEN
from ansible_collections.muster.training.tests.support.scripted_http import Call, Script

NAME = "lab-h100-0-1f2e3d4c"


KEYS = {"data": [{"id": "k1", "name": "mine", "public_key": f"{KEY.rsplit(' ', 1)[0]} other@comment"}]}


def order(provider: str, **more: t.Any) -> Order:
    offers = {
        "lambda": Offer("lambda", "gpu_1x_h100_sxm5", "us-east-1", "vm", 2.99),
        "runpod": Offer(
            "runpod", "NVIDIA H100 80GB HBM3", "US-TX-3", "container", 2.99, gpu_count=1, ref={"cloud": "SECURE"}
        ),
        "vastai": Offer("vastai", "9001", None, "container", 2.0, ref={"ask": 9001}),
        "shadeform": Offer("shadeform", "H100", "canada-1", "vm", 2.4, ref={"cloud": "hyperstack"}),
    }
    values: dict[str, t.Any] = {"offer": offers[provider], "ssh_public_key": KEY, "image": "img", **more}
    return Order("1f2e3d4c", NAME, cluster="lab", pool="h100", **values)


def scripted(make: t.Callable[[ProviderConnection], t.Any], *calls: Call) -> tuple[Script, t.Any]:
    script = Script(*calls)
    given = ProviderConnection(Secret(TOKEN, "api_token", token=True), exchange=script, clock=VirtualClock())
    return script, make(given)


LAUNCH = "/api/v1/instance-operations/launch"


def lambda_error(code: str) -> dict[str, t.Any]:
    return {"error": {"code": code, "message": "told", "suggestion": ""}}


def launch(*calls: Call) -> t.Any:
    script, provider = scripted(LambdaProvider, Call("GET", "/api/v1/ssh-keys", answer=KEYS), *calls)
    with script:
        return provider.create(order("lambda"))
