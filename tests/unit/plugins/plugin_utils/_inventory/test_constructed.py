# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""compose, groups and keyed_groups: the same outcome as Ansible's Constructable."""

from __future__ import annotations

import json
import typing as t

import pytest
from ansible.errors import AnsibleError
from ansible.template import trust_as_template
from hypothesis import event, given, settings
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.plugin_utils._inventory import constructed
from ansible_collections.muster.training.tests.support.constructed import Plugin, construct_theirs, trusted
from ansible_collections.muster.training.tests.unit.plugins.plugin_utils._inventory.constructed_cases import steps


def build(options: dict[str, t.Any], hosts: list[dict[str, t.Any]], extra: dict[str, t.Any], ours: bool) -> t.Any:
    """Return what an inventory holds after all hosts were constructed, or "error"."""
    plugin = Plugin(options, extra)
    for number, variables in enumerate(hosts):
        plugin.inventory.add_host(f"host{number}")
        plugin.inventory.hosts[f"host{number}"].vars.update(json.loads(json.dumps(variables)))
    try:
        if ours:
            constructor = constructed.Constructor(plugin, constructed.ExpressionReader(plugin, extra))
            for host in list(plugin.inventory.hosts.values()):
                constructor.apply(host)
            constructor.finish()
        else:
            for name in list(plugin.inventory.hosts):
                construct_theirs(plugin, name)
    except Exception:
        # Ansible's own groups raise plain exceptions, too.
        return "error"
    plugin.inventory.reconcile_inventory()
    groups = {
        name: ([host.name for host in group.hosts], sorted(parent.name for parent in group.parent_groups))
        for name, group in plugin.inventory.groups.items()
    }
    hosts_now = plugin.inventory.hosts.values()
    variables_now = {host.name: json.dumps(host.get_vars(), default=str, sort_keys=True) for host in hosts_now}
    members = {host.name: sorted(group.name for group in host.groups) for host in hosts_now}
    return groups, variables_now, members, plugin.inventory.get_groups_dict()


def same(options: dict[str, t.Any], hosts: list[dict[str, t.Any]], extra: dict[str, t.Any] | None = None) -> t.Any:
    mine, reference = (build(options, hosts, extra or {}, ours) for ours in (True, False))
    assert mine == reference
    return mine


names = st.sampled_from(
    ["a", "b", "c", "node", "gone", "items", "range", "omit", "true", "inventory_hostname", "group_names"]
)


texts = st.sampled_from(["", "x", "y z", "{{ 1 + 1 }}", "{% x", "tag:gpu", "\u00e9", "yes", "0", "h100-\U0001f600"])


scalars = st.one_of(texts, st.none(), st.booleans(), st.integers(-2, 9), st.sampled_from([0.5, 80.0]))


values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b", "items", "k-1"]), inner, max_size=3)
    ),
    max_leaves=5,
)


paths = st.builds(lambda name, step: name + step, names, steps)


expressions = st.one_of(
    paths,
    paths,
    paths,
    st.sampled_from(["a | default('d')", "a == 'x'", "'text'", "a and b", "1 +", "b ~ 'x'", "not c", "(a)"]),
)


conditions = expressions | st.booleans() | st.sampled_from(["a is defined", "a == b"])


entries = st.fixed_dictionaries(
    {"key": expressions},
    optional={
        "prefix": st.sampled_from(["", "p", "p q"]),
        "separator": st.sampled_from(["", "_", "-"]),
        "default_value": st.sampled_from(["none", ""]),
        "trailing_separator": st.booleans(),
        "parent_group": st.sampled_from(["family", "all", "{{ a }}", ""]),
    },
)


options_strategy = st.fixed_dictionaries(
    {
        "compose": st.dictionaries(st.sampled_from(["a", "new", "made", "bad-name"]), expressions, max_size=3),
        "groups": st.dictionaries(st.sampled_from(["one", "two-2", "3"]), conditions, max_size=3),
        "keyed_groups": st.lists(entries, max_size=3),
        "strict": st.booleans(),
        "leading_separator": st.booleans(),
    }
)


host_variables = st.dictionaries(st.sampled_from(["a", "b", "c", "node", "items"]), values, max_size=5)


@settings(max_examples=120, deadline=None)
@given(options_strategy, st.lists(host_variables, min_size=1, max_size=3), st.just({}) | st.just({"a": "extra"}))
def test_same_as_constructable(
    options: dict[str, t.Any], hosts: list[dict[str, t.Any]], extra: dict[str, t.Any]
) -> None:
    outcome = same(trusted(options), hosts, extra)
    event("error" if outcome == "error" else "done")


NODE = {"node": {"gpu": {"model": "H100", "count": 8}, "tags": ["tag:a", "tag:b"], "map": {"k": "v", "e": ""}}}


def test_plain_paths_make_variables_and_groups() -> None:
    options = trusted(
        {
            "compose": {"model": "node.gpu.model", "first": "node.tags[0]", "copy": "node.map", "none": "node.gone"},
            "groups": {"big": "flag", "always": True, "never": False},
            "keyed_groups": [
                {"key": "node.gpu.model", "prefix": "gpu", "parent_group": "gpus"},
                {"key": "node.tags", "prefix": "", "separator": ""},
                {"key": "node.map", "prefix": "m", "default_value": "none"},
            ],
        }
    )
    groups, variables, _members, _dict = same(options, [{**NODE, "flag": True}, {**NODE, "flag": False}])
    assert groups["gpu_H100"] == (["host0", "host1"], ["gpus"]) and groups["big"][0] == ["host0"]
    assert {"tag_a", "tag_b", "m_k_v", "m_e_none", "always"} <= set(groups) and "never" not in groups
    assert '"model": "H100"' in variables["host0"] and '"none"' not in variables["host0"]


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("leading", [True, False])
@pytest.mark.parametrize(
    "value", ["x", "", None, [], {}, 0, 1, True, False, 1.5, ["a", "", None, 3], {"k": None, "l": ""}, ...]
)
@pytest.mark.parametrize(
    "entry",
    [{}, {"prefix": "p"}, {"separator": "-"}, {"default_value": "d"}, {"prefix": "p", "trailing_separator": False},
     {"default_value": "d", "trailing_separator": False}, {"parent_group": "family"}],
)  # fmt: skip
def test_keyed_groups_of_every_kind_of_value(
    entry: dict[str, t.Any], value: t.Any, leading: bool, strict: bool
) -> None:
    options = {"keyed_groups": [{"key": "a", **entry}], "leading_separator": leading, "strict": strict}
    same(trusted(options), [{} if value is ... else {"a": value}])


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("value", [True, False, None, "", "yes", 0, 1, [], ...])
def test_conditions_of_every_kind_of_value(value: t.Any, strict: bool) -> None:
    same(trusted({"groups": {"g": "a"}, "strict": strict}), [{} if value is ... else {"a": value}])


def test_a_composed_container_is_a_copy() -> None:
    plugin = Plugin(trusted({"compose": {"copy": "node.map"}}), {})
    plugin.inventory.add_host("h")
    host = plugin.inventory.hosts["h"]
    host.vars.update(NODE)
    constructed.Constructor(plugin, constructed.ExpressionReader(plugin, {})).apply(host)
    host.vars["copy"]["k"] = "changed"
    assert host.vars["node"]["map"]["k"] == "v"


def test_untrusted_expressions_are_left_to_ansible() -> None:
    assert same({"compose": {"x": "a"}, "strict": True}, [{"a": 1}]) == "error"
    assert '"x"' not in same({"compose": {"x": "a"}}, [{"a": 1}])[1]["host0"]


def test_templates_in_provider_data_stay_text() -> None:
    _groups, variables, _members, _dict = same(trusted({"compose": {"x": "a", "y": "a ~ ''"}}), [{"a": "{{ 1 + 1 }}"}])
    assert json.loads(variables["host0"])["x"] == "{{ 1 + 1 }}" == json.loads(variables["host0"])["y"]


def test_templates_of_other_sources_are_followed() -> None:
    plugin = Plugin(trusted({"compose": {"x": "a"}, "keyed_groups": [{"key": "a", "prefix": "g"}]}), {})
    plugin.inventory.add_host("h")
    host = plugin.inventory.hosts["h"]
    host.vars.update(a=trust_as_template("{{ b }}"), b="deep")
    constructed.Constructor(plugin, constructed.ExpressionReader(plugin, {})).apply(host)
    assert host.vars["x"] == "deep" and "g_deep" in plugin.inventory.groups


def test_merging_hashes_takes_the_long_way(monkeypatch: pytest.MonkeyPatch) -> None:
    from ansible import constants

    monkeypatch.setattr(constants, "DEFAULT_HASH_BEHAVIOUR", "merge")
    plugin = Plugin(trusted({"compose": {"x": "a"}}), {})
    constructor = constructed.Constructor(plugin, constructed.ExpressionReader(plugin, {}))
    assert constructor._compose[0][2] is None


def test_most_entries_are_read_natively(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_args: t.Any, **_kwargs: t.Any) -> t.NoReturn:
        raise AssertionError("Jinja was asked")

    options = trusted(
        {"compose": {"m": "node.gpu.model"}, "groups": {"g": "flag"}, "keyed_groups": [{"key": "node.tags"}]}
    )
    plugin = Plugin(options, {})
    plugin.inventory.add_host("h")
    plugin.inventory.hosts["h"].vars.update(NODE, flag=True)
    for name in ("_set_composite_vars", "_add_host_to_composed_groups", "_add_host_to_keyed_groups"):
        monkeypatch.setattr(plugin, name, refuse)
    constructor = constructed.Constructor(plugin, constructed.ExpressionReader(plugin, {}))
    constructor.apply(plugin.inventory.hosts["h"])
    assert plugin.inventory.hosts["h"].vars["m"] == "H100"


def test_evaluate_reads_jinja_too() -> None:
    plugin = Plugin({}, {})
    reader = constructed.ExpressionReader(plugin, {"e": 5})
    assert reader.evaluate(trust_as_template("a.b"), {"a": {"b": 1}}) == 1
    assert reader.evaluate(trust_as_template("a.b + e"), {"a": {"b": 1}}) == 6
    assert reader.evaluate(trust_as_template("e"), {"e": 1}) == 5
    with pytest.raises(AnsibleError):
        reader.evaluate(trust_as_template("gone"), {})
