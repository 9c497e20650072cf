# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts into the inventory: which ones, under what names, with which variables.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import typing as t
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from ansible.errors import AnsibleError
from ansible.inventory.host import Host
from jinja2.exceptions import TemplateError

from ...module_utils._model.errors import InputError
from .connection_vars import Reachable, choose_endpoint, key_arguments
from .merge import is_same_machine, merge_records
from .names import NameRequest, assign_names, clean_label, clean_name

Evaluate = Callable[[t.Any, Mapping[str, t.Any]], t.Any]

# What Jinja and core raise for an expression that is wrong, undefined or of a wrong type.
_REFUSED = (AnsibleError, TemplateError, TypeError, ValueError)
_ALIVE = ("running", "creating")
_USABLE = ("running", "unknown")


class HostLike(Reachable, t.Protocol):
    """One machine or cluster of a listing (see ``_providers.records.Host``)."""

    @property
    def id(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def data(self) -> dict[str, t.Any]: ...


def own_variables(host: HostLike) -> dict[str, t.Any]:
    """Return what a listing says of a host as variables."""
    return {"muster_node": host.record, **host.data}


def filter_hosts(
    hosts: Iterable[HostLike], states: Collection[str], filters: Sequence[t.Any], evaluate: Evaluate
) -> list[HostLike]:
    """Return the hosts whose state is in ``states`` and that ``filters`` let in.

    The first filter whose expression is true decides; without one the host is in. A filter that cannot be evaluated
    is an error: left out, it would let in what it was written to keep out.
    """
    kept = [host for host in hosts if host.record["state"] in states]
    rules = [_parse_rule(entry, number) for number, entry in enumerate(filters)]
    return [host for host in kept if _decide(own_variables(host), rules, evaluate)] if rules else kept


_Rule = tuple[str, bool, t.Any]


def _parse_rule(entry: t.Any, number: int) -> _Rule:
    if not isinstance(entry, Mapping) or len(entry) != 1 or next(iter(entry)) not in ("include", "exclude"):
        raise InputError(f"filters[{number}]", "must be one of include: <expression> and exclude: <expression>")
    verb, expression = next(iter(entry.items()))
    return f"filters[{number}].{verb}", verb == "include", expression


def _decide(variables: Mapping[str, t.Any], rules: Sequence[_Rule], evaluate: Evaluate) -> bool:
    for name, includes, expression in rules:
        try:
            matches = expression if isinstance(expression, bool) else evaluate(expression, variables)
        except _REFUSED:
            raise InputError(name, "cannot be evaluated", "Check the names in it") from None
        if not isinstance(matches, bool):
            raise InputError(name, "must be true or false", "Compare the value with something")
        if matches:
            return includes
    return True


class HostAdder:
    """Adds hosts to an inventory.

    :param ways: how to connect, in order of preference.
    :param hostname: an expression for the inventory name, None for the provider's name.
    :param keys_folder: where each rented machine gets a file for its host keys; empty for none.
    :param common: variables for every host.

    ``shared`` lists the names that several machines wanted, once :meth:`place` has run.
    """

    def __init__(
        self,
        inventory: t.Any,
        *,
        ways: Sequence[str],
        hostname: t.Any,
        evaluate: Evaluate,
        keys_folder: str,
        group: str,
        common: Mapping[str, t.Any],
    ) -> None:
        self._inventory = inventory
        self._ways = ways
        self._hostname = hostname
        self._evaluate = evaluate
        self._keys_folder = keys_folder
        self._group = inventory.add_group(group) if group else None
        self._common = common
        self.shared: list[str] = []

    def place(self, hosts: Sequence[HostLike]) -> Iterator[Host]:
        """Add ``hosts`` and yield each with its variables set; none is added before all have their names."""
        add, known = self._inventory.add_host, self._inventory.hosts
        for host, name in zip(hosts, self._names(hosts), strict=True):
            before: Host | None = known.get(name)
            variables = self._variables(host, before.vars.get("muster_node") if before else None)
            entry: Host = known[add(name, self._group)]
            # Ansible's set_variable checks, copies and tags each value, at five times the price.
            if before:
                entry.vars.update(variables)
            else:
                variables.update(entry.vars)
                entry.vars = variables
            yield entry

    def _names(self, hosts: Sequence[HostLike]) -> list[str]:
        """Return the inventory names of ``hosts``, in their order."""
        wishes = [self._wish(host) for host in hosts] if self._hostname else [clean_label(host.name) for host in hosts]
        taken = self._taken(hosts, wishes)
        if not taken and len(set(wishes)) == len(wishes):
            return wishes
        alive = [host.record["state"] in _ALIVE for host in hosts]
        wanted = [NameRequest(host.id, wish, up) for host, wish, up in zip(hosts, wishes, alive, strict=True)]
        names, self.shared = assign_names(wanted, taken)
        return [names[host.id] for host in hosts]

    def _wish(self, host: HostLike) -> str:
        try:
            found = self._evaluate(self._hostname, own_variables(host))
        except _REFUSED:
            raise InputError("hostname", f"cannot be evaluated for {clean_label(host.name)}") from None
        return clean_name(found) if isinstance(found, str) and found else clean_label(host.name)

    def _taken(self, hosts: Sequence[HostLike], wishes: Sequence[str]) -> set[str]:
        """Return the wished names that belong to groups or to other machines of the inventory already."""
        known = self._inventory.hosts
        taken: set[str] = self._inventory.groups.keys() & set(wishes)
        for host, wish in zip(hosts, wishes, strict=True) if known else ():
            there = known.get(wish)
            if there is not None and not is_same_machine(host.record, there.vars.get("muster_node")):
                taken.add(wish)
        return taken

    def _variables(self, host: HostLike, theirs: t.Any) -> dict[str, t.Any]:
        """Return the host's variables; its own ``data`` becomes them."""
        record, variables = host.record, host.data
        shut = variables.get(f"{record['provider']}_reachable") is False
        if record["kind"] == "cluster":
            variables["ansible_connection"] = "local"
            open_way = True
        else:
            open_way = self._connect(host, variables)
        variables["muster_reachable"] = open_way and not shut and record["state"] in _USABLE
        variables["muster_node"] = record if theirs is None else merge_records(record, theirs)
        variables.update(self._common)
        return variables

    def _connect(self, host: HostLike, variables: dict[str, t.Any]) -> bool:
        """Set how Ansible reaches the host; false when there is no way yet."""
        found = choose_endpoint(host, self._ways)
        if found is None:
            return False
        record = host.record
        address, port, user = found
        record["ssh"] = {"host": address, "port": port, "user": user}
        variables["ansible_host"] = address
        if port is not None:
            variables["ansible_port"] = port
        if user is not None:
            variables["ansible_user"] = user
        if self._keys_folder and record["ownership"] == "rented":
            variables["ansible_ssh_common_args"] = key_arguments(self._keys_folder, record["provider"], host.id)
        return True
