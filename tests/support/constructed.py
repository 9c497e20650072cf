# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A plugin with nothing but options and an inventory, for what Ansible's Constructable makes of them."""

from __future__ import annotations

import typing as t

from ansible.inventory.data import InventoryData
from ansible.parsing.dataloader import DataLoader
from ansible.plugins.inventory import BaseInventoryPlugin, Constructable
from ansible.template import trust_as_template


class Plugin(BaseInventoryPlugin, Constructable):
    """A plugin with options and no source."""

    def __init__(self, options: dict[str, t.Any], extra: dict[str, t.Any] | None = None) -> None:
        super().__init__()
        self._options = {
            "compose": {},
            "groups": {},
            "keyed_groups": [],
            "strict": False,
            "use_extra_vars": bool(extra),
            "leading_separator": True,
            **options,
        }
        self.loader = DataLoader()
        self.inventory: t.Any = InventoryData()
        self._vars = extra or {}


def trusted(value: t.Any) -> t.Any:
    """Return options as Ansible reads them from a source file: all text may be templates."""
    if isinstance(value, str):
        return trust_as_template(value)
    if isinstance(value, list):
        return [trusted(item) for item in value]
    return {key: trusted(item) for key, item in value.items()} if isinstance(value, dict) else value


def construct_theirs(plugin: t.Any, name: str) -> None:
    """Do for one host what plugins of other collections do."""
    variables, strict = plugin.inventory.get_host(name).get_vars(), plugin.get_option("strict")
    plugin._set_composite_vars(plugin.get_option("compose"), variables, name, strict)
    plugin._add_host_to_composed_groups(plugin.get_option("groups"), variables, name, strict)
    plugin._add_host_to_keyed_groups(plugin.get_option("keyed_groups"), variables, name, strict)
