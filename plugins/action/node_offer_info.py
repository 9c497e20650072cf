# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of the node_offer_info module; its documentation is in plugins/modules/node_offer_info.py."""

from __future__ import annotations

import typing as t

from ..plugin_utils._ansible.base import STATE_HOME, WorkflowAction
from ..plugin_utils._workflows import node_offer_info
from ..plugin_utils._workflows.node_pool.accounts import PROVIDERS


class ActionModule(WorkflowAction):
    """Asks the providers from the controller, in process."""

    OPTIONS: t.ClassVar[dict[str, dict[str, t.Any]]] = {
        **PROVIDERS,
        **STATE_HOME,
        "product": {"type": "str"},
        "regions": {"type": "list", "elements": "str", "default": []},
        "kind": {"type": "str", "choices": ["vm", "container", "baremetal"]},
        "unit": {"type": "str", "choices": ["machine", "cluster"], "default": "machine"},
        "count": {"type": "int", "default": 1},
        "gpu_model": {"type": "str"},
        "gpu_count": {"type": "int"},
        "gpu_memory_gib_min": {"type": "float"},
        "memory_gib_min": {"type": "float"},
        "max_price_usd_per_hour": {"type": "float"},
        "k3s_capable": {"type": "bool"},
        "network_types": {"type": "list", "elements": "str", "choices": ["mesh", "lan", "public"], "default": []},
        "available_only": {"type": "bool", "default": True},
        "limit": {"type": "int", "default": 50},
    }

    def work(self, options: dict[str, t.Any], variables: dict[str, t.Any]) -> dict[str, t.Any]:
        """Return the result documented in the module."""
        return node_offer_info.find_offers(options)
