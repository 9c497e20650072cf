# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Apply ``compose``, ``groups`` and ``keyed_groups`` with the meaning of Ansible's ``Constructable``, but faster.

An entry whose expression is a plain path, and whose outcome is certain, is handled here; every other entry, and every
unusual outcome (undefined, of another type, an error), is passed to ``Constructable`` itself.
"""

# pylint: disable=unidiomatic-typecheck  # subclasses are meant to be refused
from __future__ import annotations

import typing as t
from collections.abc import Callable, Mapping

from ansible import constants as C
from ansible.inventory.group import Group
from ansible.inventory.host import Host
from ansible.plugins.inventory import Constructable
from ansible.template import is_trusted_as_template, trust_as_template

from .jinja_paths import ASK, MISSING, Path, parse_path, plain

HostVariables = Mapping[str, object]
_EMPTY = (None, "")
# What Ansible adds to a host's own variables (Host.get_magic_vars).
_MAGIC = ("inventory_hostname", "inventory_hostname_short", "group_names")


class ExpressionReader:
    """Reads expressions for one plugin, natively where the outcome is certain."""

    def __init__(self, plugin: Constructable, extra_variables: HostVariables) -> None:
        self._plugin = plugin
        self._extra_variables = extra_variables
        self._known_to_jinja: dict[str, bool] = {}

    def path(self, expression: object, *, extra: bool = True) -> Path | None:
        """Return the path of ``expression`` if it may be read natively.

        Jinja refuses text that is not a trusted template, and extra variables (``extra``: whether they count) come
        before a host's own.
        """
        if not isinstance(expression, str) or not is_trusted_as_template(expression):
            return None
        path = parse_path(expression)
        if path is None or path.root in _MAGIC or (extra and path.root in self._extra_variables):
            return None
        return path

    def resolve_missing(self, path: Path, variables: HostVariables) -> object:
        """Return ``MISSING`` for a path that led to nothing, or ``ASK`` where Jinja defines its first name itself."""
        return ASK if path.root not in variables and self._is_global(path.root) else MISSING

    def read(self, path: Path, variables: HostVariables) -> object:
        """Return a copy of the value of ``path``, ``MISSING`` where Jinja would find nothing, or ``ASK``."""
        value = path.read(variables)
        return self.resolve_missing(path, variables) if value is MISSING else value

    def evaluate(self, expression: object, variables: HostVariables) -> object:
        """Return the value of an expression for ``variables``; raise whatever Jinja raises."""
        path = self.path(expression)
        value = ASK if path is None else self.read(path, variables)
        if value is not ASK and value is not MISSING:
            return value
        self._plugin.templar.available_variables = {**variables, **self._extra_variables}
        return self._plugin.templar.evaluate_expression(t.cast(str, expression))

    def _is_global(self, name: str) -> bool:
        """Return whether Jinja knows ``name`` without any variable, such as ``range`` or ``lookup``."""
        if name not in self._known_to_jinja:
            templar = self._plugin.templar
            templar.available_variables = {}
            self._known_to_jinja[name] = bool(templar.evaluate_expression(trust_as_template(f"{name} is defined")))
        return self._known_to_jinja[name]


Step = Callable[[Host], None]


class Membership:
    """A group that hosts join one after another."""

    __slots__ = ("group", "names")

    def __init__(self, group: Group) -> None:
        self.group = group
        self.names: set[str] = group.host_names

    def add(self, host: Host) -> None:
        """Put ``host`` into the group, as ``Group.add_host`` does, which looks for relatives each time."""
        group = self.group
        if group.parent_groups or group.child_groups:
            group.add_host(host)
        elif host.name not in self.names:
            # A group without children holds a host if and only if the host holds the group.
            group.hosts.append(host)
            self.names.add(host.name)
            host.groups.append(group)


class Constructor:
    """Applies a plugin's ``compose``, ``groups`` and ``keyed_groups`` to its hosts, one after another.

    :param plugin: the plugin, parsed as far as ``self.inventory``; its options are read once.
    :param reader: made for the same plugin.
    """

    def __init__(self, plugin: Constructable, reader: ExpressionReader) -> None:
        # Constructable's helpers and options have no types.
        self._plugin: t.Any = plugin
        self._inventory: t.Any = plugin.inventory
        option: Callable[[str], t.Any] = self._plugin.get_option
        self._strict = bool(option("strict"))
        self._reader = reader
        self._memberships: dict[str, Membership] = {}
        # With hash_behaviour=merge a variable may be merged into another: Ansible's own way is taken for all.
        self._native = t.cast(t.Any, C).DEFAULT_HASH_BEHAVIOUR != "merge"
        self._leading = option("leading_separator") is not False
        compose = dict(option("compose") or {})
        # Names from YAML are tagged text, which as a key would make each host's dictionary of the slow, large kind.
        self._compose = [(str(name), text, self._compose_path(name, text)) for name, text in compose.items()]
        self._steps = [self._group_step(name, text) for name, text in dict(option("groups") or {}).items()]
        self._steps += [self._keyed_step(entry) for entry in option("keyed_groups") or []]

    def apply(self, host: Host) -> None:
        """Give ``host`` its composed variables and put it into its groups."""
        if self._compose:
            self._set_variables(host)
        for step in self._steps:
            step(host)

    def finish(self) -> None:
        """Make the inventory forget what it had remembered about groups before."""
        for member in self._memberships.values():
            member.group.clear_hosts_cache()
            if member.group.hosts:
                self._inventory.add_child(member.group.name, member.group.hosts[-1].name)

    def _compose_path(self, name: object, expression: object) -> Path | None:
        usable = self._native and isinstance(name, str) and name.isascii() and name.isidentifier()
        return self._reader.path(expression) if usable else None

    def _set_variables(self, host: Host) -> None:
        """Set the composed variables; all are read before the first is written, as none may see another."""
        own = host.vars
        values = [(name, text, self._reader.read(path, own) if path else ASK) for name, text, path in self._compose]
        strict = self._strict
        unread = [(name, text) for name, text, value in values if value is ASK or (strict and value is MISSING)]
        variables = host.get_vars() if unread else {}
        for name, _text, value in values:
            if value is not MISSING and value is not ASK:
                own[name] = value
        for name, text in unread:
            self._plugin._set_composite_vars({name: text}, variables, host.name, strict)

    def _membership(self, raw_name: str) -> Membership:
        membership = self._memberships.get(raw_name)
        if membership is None:
            name = self._inventory.add_group(self._plugin._sanitize_group_name(raw_name))
            membership = self._memberships[raw_name] = Membership(self._inventory.groups[name])
        return membership

    def _group_step(self, name: object, expression: object) -> Step:
        path = self._reader.path(expression, extra=False) if self._native and isinstance(name, str) else None
        constant = expression if self._native and isinstance(expression, bool) else ASK

        def step(host: Host) -> None:
            value = path.find(host.vars) if path else constant
            if path and value is MISSING:
                value = self._reader.resolve_missing(path, host.vars)
            if value is True:
                self._membership(str(name)).add(host)
            elif value is not False and (value is not MISSING or self._strict):
                self._plugin._add_host_to_composed_groups({name: expression}, host.get_vars(), host.name, self._strict)

        return step

    def _keyed_step(self, entry: object) -> Step:
        def slow(host: Host) -> None:
            self._plugin._add_host_to_keyed_groups([entry], host.get_vars(), host.name, self._strict)

        plan = KeyedPlan.of(entry, self._leading) if self._native else None
        path = self._reader.path(t.cast(dict[str, object], entry).get("key")) if plan else None
        if plan is None or path is None:
            return slow
        # Most hosts share few values: the groups of each value are found once.
        groups: dict[str, list[Membership]] = {}

        def step(host: Host) -> None:
            value = path.find(host.vars)
            members = groups.get(value) if type(value) is str else None
            if members is None:
                value = self._reader.resolve_missing(path, host.vars) if value is MISSING else plain(value)
                names = plan.names(value, self._strict)
                if names is None:
                    slow(host)
                    return
                members = [self._membership(name) for name in names]
                if type(value) is str:
                    groups[value] = members
            for member in members:
                member.add(host)
                if plan.parent:
                    self._adopt(plan.parent, member.group)

        return step

    def _adopt(self, parent: str, group: Group) -> None:
        name = self._inventory.add_group(self._plugin._sanitize_group_name(parent))
        self._inventory.add_child(name, group.name)


class KeyedPlan(t.NamedTuple):
    """One entry of ``keyed_groups`` without its key."""

    prefix: str
    separator: str
    lead: str
    default: str | None
    trailing: bool | None
    parent: str | None

    @classmethod
    def of(cls, entry: object, leading: bool) -> KeyedPlan | None:
        """Return the plan of an entry, None when it has parts that only ``Constructable`` can handle."""
        if not isinstance(entry, dict) or not entry:
            return None
        prefix, separator = entry.get("prefix", ""), entry.get("separator", "_")
        default, trailing, parent = (
            entry.get("default_value"),
            entry.get("trailing_separator"),
            entry.get("parent_group"),
        )
        texts = isinstance(prefix, str) and isinstance(separator, str) and isinstance(default, (str, type(None)))
        fixed = parent is None or (isinstance(parent, str) and "{" not in parent)
        if not (texts and fixed) or (default is not None and trailing is not None):
            return None
        lead = "" if prefix == "" and not leading else separator
        return cls(prefix, separator, lead, default, trailing, parent)

    def names(self, key: object, strict: bool) -> list[str] | None:
        """Return the group names for a key's value, None when ``Constructable`` has to decide (or to complain)."""
        if key is ASK or (key is MISSING and strict):
            return None
        if key is MISSING:
            return []
        if key in _EMPTY and self.default is not None:
            return [self._full(self.default)]
        if not key:
            return None if strict and key not in ([], {}) else []
        if isinstance(key, str):
            return [self._full(key)]
        if isinstance(key, list):
            return [self._full(self._or_default(item)) for item in key]
        if isinstance(key, dict):
            return [self._full(self._pair(name, value)) for name, value in key.items()]
        return None

    def _full(self, bare: object) -> str:
        return f"{self.prefix}{self.lead}{bare}"

    def _or_default(self, item: object) -> object:
        return self.default if item in _EMPTY and self.default is not None else item

    def _pair(self, name: str, value: object) -> str:
        if value in _EMPTY and self.default is not None:
            return f"{name}{self.separator}{self.default}"
        if value in _EMPTY and self.trailing is False:
            return name
        return f"{name}{self.separator}{value}"
