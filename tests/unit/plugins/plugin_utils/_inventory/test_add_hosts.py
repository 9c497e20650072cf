# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts of a listing become hosts of an inventory: which ones, under which names, with which variables."""

from __future__ import annotations

import typing as t

import pytest
from ansible.errors import AnsibleError
from ansible.inventory.data import InventoryData
from jinja2.exceptions import UndefinedError

from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError
from ansible_collections.muster.training.plugins.plugin_utils._inventory.add_hosts import (
    HostAdder,
    build_variables,
    filter_hosts,
)
from ansible_collections.muster.training.plugins.plugin_utils._providers.node_record import ProviderHost, build_record

Variables = t.Mapping[str, t.Any]


def host(ident: str = "i-1", name: str = "spark-01", provider: str = "lambda", **fields: t.Any) -> ProviderHost:
    state, kind, data = fields.pop("state", "running"), fields.pop("kind", "vm"), fields.pop("data", {})
    fields = {"public": ("203.0.113.4",), "user": "ubuntu", **fields}
    record = build_record(ident, name, provider, "acc", fields.pop("ownership", "rented"), kind, state, **fields)
    return ProviderHost(ident, name, record, dict(data))


def evaluate(expression: object, variables: Variables) -> object:
    """Stand for Jinja: an expression is a function of the variables."""
    return t.cast(t.Callable[[Variables], object], expression)(variables)


def is_named(name: str) -> t.Callable[[Variables], bool]:
    return lambda variables: variables["muster_node"]["name"] == name


def failing(exc: Exception) -> t.Callable[[Variables], t.NoReturn]:
    def expression(_variables: Variables) -> t.NoReturn:
        raise exc

    return expression


def add(inventory: InventoryData, *hosts: ProviderHost, **options: t.Any) -> tuple[dict[str, Variables], list[str]]:
    given = {"ways": ("public",), "hostname": None, "keys_folder": "", "group": "", "common": {}, **options}
    adder = HostAdder(inventory, evaluate=evaluate, **given)
    return {entry.name: entry.vars for entry in adder.add(hosts)}, adder.shared


def test_hosts_of_other_states_are_left_out() -> None:
    hosts = [host("i-1"), host("i-2", state="failed"), host("i-3", state="creating")]
    assert [item.id for item in filter_hosts(hosts, ("running", "creating"), [], evaluate)] == ["i-1", "i-3"]


def test_the_first_filter_that_is_true_decides() -> None:
    hosts = [host("i-1", "a"), host("i-2", "b"), host("i-3", "c")]
    filters = [{"include": is_named("a")}, {"exclude": is_named("b")}, {"exclude": is_named("a")}]
    assert [item.id for item in filter_hosts(hosts, ("running",), filters, evaluate)] == ["i-1", "i-3"]
    only = [{"include": is_named("b")}, {"exclude": True}]
    assert [item.id for item in filter_hosts(hosts, ("running",), only, evaluate)] == ["i-2"]


def test_a_filter_reads_the_record_and_the_data() -> None:
    assert build_variables(host(data={"lambda_x": 1})).keys() == {"muster_node", "lambda_x"}


@pytest.mark.parametrize("entry", ["x", {}, {"include": True, "exclude": True}, {"only": True}, None])
def test_a_filter_has_one_verb_and_one_expression(entry: object) -> None:
    with pytest.raises(InputError, match=r"filters\[1\]: must be one of include"):
        filter_hosts([], (), [{"include": True}, entry], evaluate)


@pytest.mark.parametrize("exc", [AnsibleError("x"), UndefinedError("x"), TypeError("x"), ValueError("x")])
def test_a_filter_that_cannot_be_evaluated_is_an_error(exc: Exception) -> None:
    with pytest.raises(InputError, match=r"filters\[0\]\.exclude: cannot be evaluated"):
        filter_hosts([host()], ("running",), [{"exclude": failing(exc)}], evaluate)


@pytest.mark.parametrize("value", [1, "true", None, []])
def test_a_filter_is_true_or_false(value: object) -> None:
    with pytest.raises(InputError, match=r"filters\[0\]\.include: must be true or false"):
        filter_hosts([host()], ("running",), [{"include": lambda _variables: value}], evaluate)


def test_a_host_gets_its_endpoint_its_data_and_the_common_variables() -> None:
    inventory = InventoryData()
    added, shared = add(inventory, host(data={"lambda_x": 1}), group="gpus", common={"muster_inventory_age_s": 9})
    variables = added["spark-01"]
    assert (variables["ansible_host"], variables["ansible_user"]) == ("203.0.113.4", "ubuntu")
    assert "ansible_port" not in variables and "ansible_ssh_common_args" not in variables
    assert variables["muster_node"]["ssh"] == {"host": "203.0.113.4", "port": None, "user": "ubuntu"}
    assert (variables["lambda_x"], variables["muster_inventory_age_s"], shared) == (1, 9, [])
    assert [item.name for item in inventory.groups["gpus"].hosts] == ["spark-01"]


@pytest.mark.parametrize(
    ("fields", "reachable"),
    [
        ({}, True),
        ({"state": "unknown"}, True),
        ({"state": "creating"}, False),
        ({"public": ()}, False),
        ({"data": {"lambda_reachable": False}}, False),
        ({"kind": "cluster", "public": ()}, True),
    ],
)
def test_a_reachable_host_is_usable_has_an_endpoint_and_is_not_blocked(
    fields: dict[str, t.Any], reachable: bool
) -> None:
    added, _shared = add(InventoryData(), host(**fields))
    assert added["spark-01"]["muster_reachable"] is reachable


def test_a_cluster_is_worked_on_from_the_controller() -> None:
    added, _shared = add(InventoryData(), host(kind="cluster"))
    assert added["spark-01"]["ansible_connection"] == "local" and "ansible_host" not in added["spark-01"]


@pytest.mark.parametrize(("ownership", "folder", "has_file"), [("rented", "/keys", True), ("owned", "/keys", False)])
def test_only_a_rented_machine_gets_a_file_for_its_host_keys(ownership: str, folder: str, has_file: bool) -> None:
    added, _shared = add(InventoryData(), host(ownership=ownership), keys_folder=folder)
    assert ("/keys" in str(added["spark-01"].get("ansible_ssh_common_args"))) is has_file


def test_of_two_machines_with_one_name_the_live_one_keeps_it() -> None:
    added, shared = add(InventoryData(), host("i-1", state="failed"), host("i-2"))
    assert added["spark-01"]["muster_node"]["id"] == "i-2" and len(added) == 2 and shared == ["spark-01"]


def test_a_name_of_a_group_is_not_taken() -> None:
    inventory = InventoryData()
    inventory.add_group("spark-01")
    added, _shared = add(inventory, host())
    (name,) = added
    assert name.startswith("spark-01-")


def test_the_same_machine_of_another_source_is_completed() -> None:
    inventory = InventoryData()
    add(inventory, host("n1", provider="tailscale", mesh=("100.64.0.1",), public=()), ways=("mesh",))
    inventory.set_variable("spark-01", "mine", "kept")
    added, shared = add(inventory, host())
    assert list(added) == ["spark-01"] and shared == [] and added["spark-01"]["mine"] == "kept"
    record = added["spark-01"]["muster_node"]
    assert (record["provider"], record["addresses"]["mesh"][0]["address"]) == ("lambda", "100.64.0.1")


def test_another_machine_of_the_same_name_stays_another_host() -> None:
    inventory = InventoryData()
    add(inventory, host("pod-1", provider="runpod"))
    added, _shared = add(inventory, host())
    assert "spark-01" not in added and len(inventory.hosts) == 2


def test_a_name_may_be_an_expression() -> None:
    added, _shared = add(InventoryData(), host(), hostname=lambda variables: variables["muster_node"]["id"] + ".lab")
    assert list(added) == ["i-1.lab"]
    for odd in ("", None, 7):
        assert list(add(InventoryData(), host(), hostname=lambda _variables, odd=odd: odd)[0]) == ["spark-01"]
    with pytest.raises(InputError, match="hostname: cannot be evaluated for spark-01"):
        add(InventoryData(), host(), hostname=failing(AnsibleError("secret")))


def test_no_host_is_added_before_all_have_names() -> None:
    def hostname(variables: Variables) -> object:
        if variables["muster_node"]["id"] == "i-2":
            raise TypeError
        return "first"

    inventory = InventoryData()
    with pytest.raises(InputError):
        add(inventory, host("i-1"), host("i-2"), hostname=hostname)
    assert inventory.hosts == {}
