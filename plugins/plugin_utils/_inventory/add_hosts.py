# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Add hosts to the inventory: filter them, name them, set their variables and connection."""

from __future__ import annotations

import typing as t
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from ansible.errors import AnsibleError
from ansible.inventory.host import Host
from jinja2.exceptions import TemplateError

from ...module_utils._model.errors import InputError
from .._providers.node_record import HostVariables, ProviderHost
from .connection_vars import choose_endpoint, key_arguments
from .merge import is_same_machine, merge_records
from .names import NameRequest, assign_names, clean_label, clean_name

Evaluate = Callable[[object, Mapping[str, object]], object]

# What Jinja and core raise for an expression that is wrong, undefined or of a wrong type.
_EXPRESSION_ERRORS = (AnsibleError, TemplateError, TypeError, ValueError)
_ALIVE = ("running", "creating")
_USABLE = ("running", "unknown")


def build_variables(host: ProviderHost) -> HostVariables:
    """Return a listed host's record and data as variables."""
    return {"muster_node": host.record, **host.data}


def filter_hosts(
    hosts: Iterable[ProviderHost], states: Collection[str], filters: Sequence[object], evaluate: Evaluate
) -> list[ProviderHost]:
    """Return the hosts whose state is in ``states`` and that ``filters`` include.

    The first filter whose expression is true decides; without one the host is included. A filter that cannot be
    evaluated is an error: ignored, it would include what it was written to exclude.
    """
    in_state = [host for host in hosts if host.record["state"] in states]
    rules = [_parse_rule(entry, number) for number, entry in enumerate(filters)]
    return [host for host in in_state if _decide(build_variables(host), rules, evaluate)] if rules else in_state


_Rule = tuple[str, bool, object]


def _parse_rule(entry: object, number: int) -> _Rule:
    if not isinstance(entry, Mapping) or len(entry) != 1 or next(iter(entry)) not in ("include", "exclude"):
        raise InputError(f"filters[{number}]", "must be one of include: <expression> and exclude: <expression>")
    verb, expression = next(iter(entry.items()))
    return f"filters[{number}].{verb}", verb == "include", expression


def _decide(variables: Mapping[str, object], rules: Sequence[_Rule], evaluate: Evaluate) -> bool:
    for name, includes, expression in rules:
        try:
            matches = expression if isinstance(expression, bool) else evaluate(expression, variables)
        except _EXPRESSION_ERRORS:
            raise InputError(name, "cannot be evaluated", "Check the names in it") from None
        if not isinstance(matches, bool):
            raise InputError(name, "must be true or false", "Compare the value with something")
        if matches:
            return includes
    return True


class HostAdder:
    """Adds hosts to an inventory.

    :param ways: values of ``connect_with``, in order of preference.
    :param hostname: an expression for the inventory name, None for the provider's name.
    :param keys_folder: where each rented machine gets a file for its host keys; empty for none.
    :param common: variables for every host.

    ``shared`` lists the names that several machines wanted, once :meth:`add` has run.
    """

    def __init__(
        self,
        inventory: t.Any,
        *,
        ways: Sequence[str],
        hostname: object,
        evaluate: Evaluate,
        keys_folder: str,
        group: str,
        common: Mapping[str, object],
    ) -> None:
        self._inventory = inventory
        self._ways = ways
        self._hostname = hostname
        self._evaluate = evaluate
        self._keys_folder = keys_folder
        self._group = inventory.add_group(group) if group else None
        self._common = common
        self.shared: list[str] = []

    def add(self, hosts: Sequence[ProviderHost]) -> Iterator[Host]:
        """Add ``hosts`` and yield each with its variables set; none is added before all have their names."""
        add_host, existing = self._inventory.add_host, self._inventory.hosts
        for host, name in zip(hosts, self._names(hosts), strict=True):
            before: Host | None = existing.get(name)
            variables = self._variables(host, before.vars.get("muster_node") if before else None)
            entry: Host = existing[add_host(name, self._group)]
            # Ansible's set_variable checks, copies and tags each value, which takes five times as long.
            if before:
                entry.vars.update(variables)
            else:
                variables.update(entry.vars)
                entry.vars = variables
            yield entry

    def _names(self, hosts: Sequence[ProviderHost]) -> list[str]:
        """Return the inventory names of ``hosts``, in their order."""
        wanted = [self._wanted_name(host) for host in hosts]
        taken = self._taken_names(hosts, wanted)
        if not taken and len(set(wanted)) == len(wanted):
            return wanted
        alive = [host.record["state"] in _ALIVE for host in hosts]
        requests = [NameRequest(host.id, name, up) for host, name, up in zip(hosts, wanted, alive, strict=True)]
        names, self.shared = assign_names(requests, taken)
        return [names[host.id] for host in hosts]

    def _wanted_name(self, host: ProviderHost) -> str:
        if not self._hostname:
            return clean_label(host.name)
        try:
            name = self._evaluate(self._hostname, build_variables(host))
        except _EXPRESSION_ERRORS:
            raise InputError("hostname", f"cannot be evaluated for {clean_label(host.name)}") from None
        return clean_name(name) if isinstance(name, str) and name else clean_label(host.name)

    def _taken_names(self, hosts: Sequence[ProviderHost], wanted: Sequence[str]) -> set[str]:
        """Return the wanted names that groups or other machines of the inventory already have."""
        existing = self._inventory.hosts
        taken: set[str] = self._inventory.groups.keys() & set(wanted)
        for host, name in zip(hosts, wanted, strict=True) if existing else ():
            other = existing.get(name)
            if other is not None and not is_same_machine(host.record, other.vars.get("muster_node")):
                taken.add(name)
        return taken

    def _variables(self, host: ProviderHost, theirs: object) -> HostVariables:
        """Return the host's variables; its own ``data`` becomes them."""
        record, variables = host.record, host.data
        is_blocked = variables.get(f"{record['provider']}_reachable") is False
        if record["kind"] == "cluster":
            variables["ansible_connection"] = "local"
            has_endpoint = True
        else:
            has_endpoint = self._connect(host, variables)
        variables["muster_reachable"] = has_endpoint and not is_blocked and record["state"] in _USABLE
        variables["muster_node"] = record if theirs is None else merge_records(record, theirs)
        variables.update(self._common)
        return variables

    def _connect(self, host: ProviderHost, variables: HostVariables) -> bool:
        """Set how Ansible connects to the host; false when it has no endpoint yet."""
        endpoint = choose_endpoint(host, self._ways)
        if endpoint is None:
            return False
        record = host.record
        address, port, user = endpoint
        record["ssh"] = {"host": address, "port": port, "user": user}
        variables["ansible_host"] = address
        if port is not None:
            variables["ansible_port"] = port
        if user is not None:
            variables["ansible_user"] = user
        if self._keys_folder and record["ownership"] == "rented":
            variables["ansible_ssh_common_args"] = key_arguments(self._keys_folder, record["provider"], host.id)
        return True
