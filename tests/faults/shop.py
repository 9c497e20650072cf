# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A controller with accounts at RunPod and Lambda, through the options of node_pool to their fakes."""

from __future__ import annotations

import pathlib
import typing as t

from ansible_collections.muster.training.tests.fakes.virtual import VirtualClock
from ansible_collections.muster.training.tests.fakes.wire import TOKEN
from ansible_collections.muster.training.tests.unit.plugins.plugin_utils._workflows.node_pool.pool_accounts import Place

H100 = {"gpu_model": "H100", "gpu_count": 1}


class Shop(Place):
    """A controller with accounts at RunPod and Lambda; ``b`` is another RunPod account."""

    def __init__(self, folder: pathlib.Path, urls: dict[str, str], clock: VirtualClock) -> None:
        super().__init__(folder, urls["lambda"], "", clock)
        self.urls |= urls

    def rent(self, provider: str = "runpod", count: int = 1, **options: t.Any) -> dict[str, t.Any]:
        candidate = {"provider": provider, "image": "ubuntu", **H100, **options.pop("candidate", {})}
        options.setdefault("providers", self.providers(provider))
        return self.pool(count=count, candidates=[candidate], **options)

    def end(self, provider: str = "runpod", **options: t.Any) -> dict[str, t.Any]:
        options.setdefault("providers", self.providers(provider))
        return self.pool(state="absent", pool=None, **options)

    def reap(self, provider: str = "runpod", **options: t.Any) -> dict[str, t.Any]:
        return self.end(provider, due_only=True, **options)


def named(shop: Shop, key: str, account: str = "acme") -> list[dict[str, t.Any]]:
    """Return RunPod under a name of the user's, with the key of one of two accounts."""
    url, token = (shop.urls["runpod"], TOKEN) if key == "a" else (shop.urls["b"], f"{TOKEN}-of-b")
    return [{"name": "runpod", "account": account, "api_token": token, "api_url": url}]
