# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Changes of a device: only what differs, lists complete."""

from __future__ import annotations

import dataclasses

from ansible_collections.muster.training.plugins.plugin_utils._providers.tailscale.devices import Changes, Device

DEVICE = Device("n1", "a.example.ts.net", "a", True, True, ("tag:x", "tag:y"), ("10.0.0.0/8",), ("10.0.0.0/8",))


def test_only_what_differs_is_a_change_and_order_does_not_count() -> None:
    same = Changes.between(DEVICE, tags=("tag:y", "tag:x"), routes=("10.0.0.0/8",), authorized=True)
    assert same.is_empty and same.apply_to(DEVICE) == DEVICE
    changes = Changes.between(DEVICE, tags=("tag:x",), routes=None, authorized=False)
    assert changes == Changes(tags=("tag:x",), authorized=False) and not changes.is_empty


def test_an_empty_list_is_a_value() -> None:
    changes = Changes.between(DEVICE, tags=(), routes=(), authorized=None)
    assert changes.apply_to(DEVICE) == dataclasses.replace(DEVICE, tags=(), routes=())
    assert changes.apply_to(DEVICE).to_dict()["tags"] == []
