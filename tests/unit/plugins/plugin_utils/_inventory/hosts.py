# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts of a listing, for tests of names, connections and merged records."""

from __future__ import annotations

import typing as t

from ansible_collections.muster.training.plugins.plugin_utils._providers.node_record import ProviderHost, build_record


def make(provider: str = "lambda", **fields: t.Any) -> ProviderHost:
    extra = {key: fields.pop(key) for key in ("dns", "direct") if key in fields}
    made = build_record("i-1", fields.pop("name", "node"), provider, "acc", "rented", "vm", "running", **fields)
    return ProviderHost("i-1", "node", made, {}, **extra)


FULL = make(
    mesh=("fd7a::1", "100.64.0.1"),
    lan=("169.254.1.1", "10.0.0.1"),
    public=("2001:db8::1",),
    user="ubuntu",
    dns="node.ts.net",
    direct=("203.0.113.4", 22001, "root"),
)
