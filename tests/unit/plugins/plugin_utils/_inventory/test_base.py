# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The base of the inventory plugins: from a source file to hosts, and every failure one line that names it."""

from __future__ import annotations

import pathlib
import types
import typing as t

import pytest
from ansible import constants
from ansible.errors import AnsibleParserError
from ansible.inventory.data import InventoryData
from ansible.parsing.dataloader import DataLoader

from ansible_collections.muster.training.plugins.module_utils._model.errors import (
    InputError,
    MusterError,
    TransportError,
)
from ansible_collections.muster.training.plugins.module_utils._secrets import scrubber
from ansible_collections.muster.training.plugins.module_utils._secrets.sources import SecretSource
from ansible_collections.muster.training.plugins.plugin_utils._inventory import base
from ansible_collections.muster.training.plugins.plugin_utils._providers.node_record import ProviderHost, build_record
from ansible_collections.muster.training.tests.support.constructed import trusted

OPTIONS: dict[str, t.Any] = {
    "api_url": None, "validate_certs": True, "ca_path": None, "proxy": None, "timeout_s": 20, "states": ["running"],
    "filters": None, "use_extra_vars": False, "connect_with": None, "hostname": None, "known_hosts_dir": None,
    "group": None, "cache_dir": None, "cache_fresh_s": 0, "cache_stale_s": 0, "compose": {}, "groups": {},
    "keyed_groups": [], "strict": False, "leading_separator": True, "on_error": "fail", "api_token": None,
    "api_token_file": None,
}  # fmt: skip


class Plugin(base.MusterInventory):
    """Lists what a test gives; its options are the source file's."""

    NAME = "muster.training.example"
    ENDINGS = ("example.yml",)

    def __init__(self, listing: list[dict[str, t.Any]] | Exception, **options: t.Any) -> None:
        super().__init__()
        self.listing = listing
        self.given = trusted(options)
        self._options = {**OPTIONS, **self.given}
        self.fetches = 0
        self.warnings: list[str] = []
        self.display: t.Any = types.SimpleNamespace(warning=self.warnings.append, vvv=str)

    @property
    def option_definitions(self) -> dict[str, dict[str, str]]:
        return {name: {"type": "bool" if isinstance(value, bool) else "str"} for name, value in OPTIONS.items()}

    def _read_config_data(self, path: str) -> dict[str, t.Any]:
        return self.given

    def source(self) -> base.InventorySource:
        return base.InventorySource("https://api.example", "acc", self.fetch, self.to_host)

    def fetch(self) -> list[dict[str, t.Any]]:
        self.fetches += 1
        if isinstance(self.listing, Exception):
            raise self.listing
        return list(self.listing)

    @staticmethod
    def to_host(raw: t.Mapping[str, t.Any]) -> ProviderHost:
        name = raw["name"]
        record = build_record(raw["id"], name, "lambda", "acc", "rented", "vm", "running", public=("203.0.113.4",))
        return ProviderHost(raw["id"], name, record, {})


TWO = [{"id": "i-1", "name": "a"}, {"id": "i-2", "name": "b"}]


@pytest.fixture(autouse=True)
def clean_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "INVENTORY_ANY_UNPARSED_IS_FAILED", False)
    monkeypatch.setattr(scrubber, "_registry", scrubber._Registry())


def parse(folder: pathlib.Path, plugin: Plugin, cache: bool = True) -> InventoryData:
    path = folder / "my.example.yml"
    path.write_text("plugin: muster.training.example\n")
    inventory = InventoryData()
    plugin.parse(inventory, DataLoader(), str(path), cache)
    return inventory


def failure(folder: pathlib.Path, plugin: Plugin) -> str:
    with pytest.raises(AnsibleParserError) as caught:
        parse(folder, plugin)
    return str(caught.value)


def test_listed_machines_become_hosts_in_order_and_in_groups(tmp_path: pathlib.Path) -> None:
    plugin = Plugin(TWO, group="gpus", keyed_groups=[{"key": "muster_node.id", "prefix": "id"}], compose={"x": "1 + 1"})
    inventory = parse(tmp_path, plugin)
    assert list(inventory.hosts) == ["a", "b"]
    assert [host.name for host in inventory.groups["gpus"].hosts] == ["a", "b"]
    assert [host.name for host in inventory.groups["id_i_2"].hosts] == ["b"]
    assert inventory.hosts["a"].vars["x"] == 2 and inventory.hosts["a"].vars["ansible_host"] == "203.0.113.4"
    assert plugin.warnings == [] and "muster_inventory_age_s" not in inventory.hosts["a"].vars


def test_groups_are_conditions_and_may_use_composed_variables(tmp_path: pathlib.Path) -> None:
    plugin = Plugin(
        TWO,
        compose={"first": "muster_node.id == 'i-1'"},
        groups={"leaders": "first", "everyone": True},
        keyed_groups=[{"key": "gone", "prefix": "none"}],
    )
    groups = parse(tmp_path, plugin).groups
    assert [host.name for host in groups["leaders"].hosts] == ["a"]
    assert [host.name for host in groups["everyone"].hosts] == ["a", "b"] and "none" not in " ".join(groups)


@pytest.mark.parametrize(
    "options", [{"compose": {"x": "gone"}}, {"groups": {"g": "gone"}}, {"keyed_groups": [{"key": "gone"}]}]
)
def test_an_expression_that_cannot_be_evaluated_is_skipped_unless_strict(
    tmp_path: pathlib.Path, options: dict[str, t.Any]
) -> None:
    inventory = parse(tmp_path, Plugin(TWO, **options))
    assert "x" not in inventory.hosts["a"].vars and set(inventory.groups) == {"all", "ungrouped"}
    assert "Could not" in failure(tmp_path, Plugin(TWO, strict=True, **options))


def test_extra_variables_are_known_where_they_are_wanted(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ansible.plugins.inventory.load_extra_vars", lambda _loader: {"keep": "i-2"})
    for wanted, expected in ((True, ["b"]), (False, ["a"])):
        plugin = Plugin(
            TWO,
            use_extra_vars=wanted,
            filters=[{"include": "muster_node.id == (keep | default('i-1'))"}, {"exclude": True}],
        )
        assert list(parse(tmp_path, plugin).hosts) == expected


def test_filters_are_expressions_of_the_source_file(tmp_path: pathlib.Path) -> None:
    plugin = Plugin(TWO, filters=[{"exclude": "muster_node.id == 'i-1'"}])
    assert list(parse(tmp_path, plugin).hosts) == ["b"]


def test_machines_of_one_name_are_told_apart_with_a_warning(tmp_path: pathlib.Path) -> None:
    plugin = Plugin([{"id": "i-1", "name": "a"}, {"id": "i-2", "name": "a"}])
    assert len(parse(tmp_path, plugin).hosts) == 2
    assert len(plugin.warnings) == 1 and "several machines have the same name" in plugin.warnings[0]


@pytest.mark.parametrize(
    ("problem", "message"),
    [
        (TransportError("the API does not answer"), "my.example.yml: the API does not answer"),
        (MusterError("two\n  lines"), "my.example.yml: two lines"),
        (KeyError("geheim-42"), "my.example.yml: internal error (KeyError). Please report it"),
    ],
)
def test_a_failure_is_one_line_and_never_an_empty_account(
    tmp_path: pathlib.Path, problem: Exception, message: str
) -> None:
    found = failure(tmp_path, Plugin(problem))
    assert message in found and "geheim" not in found
    assert t.cast(t.Any, constants).INVENTORY_ANY_UNPARSED_IS_FAILED is True


def test_a_known_secret_is_taken_out_of_a_failure(tmp_path: pathlib.Path) -> None:
    scrubber.remember("geheim-42")
    assert "********" in failure(tmp_path, Plugin(MusterError("answered geheim-42")))


def test_a_failure_may_be_a_warning_and_is_kept_for_the_play(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "my.example.yml"
    path.write_text("plugin: muster.training.example\n")
    inventory = InventoryData()
    for text in ("first", "second"):
        with pytest.raises(AnsibleParserError):
            Plugin(MusterError(text), on_error="warn").parse(inventory, DataLoader(), str(path))
    assert inventory.groups["all"].vars[base.PROBLEMS] == ["my.example.yml: first", "my.example.yml: second"]
    assert t.cast(t.Any, constants).INVENTORY_ANY_UNPARSED_IS_FAILED is False


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"gruop": "x"}, "Did you mean 'group'"),
        ({"validate_certs": "maybe"}, "validate_certs"),
        ({"keyed_groups": [{"key": "a", "prefx": "b"}]}, "prefx: is not an option"),
    ],
)
def test_a_wrong_option_is_refused_before_the_api_is_asked(
    tmp_path: pathlib.Path, options: dict[str, t.Any], problem: str
) -> None:
    plugin = Plugin(TWO, **options)
    assert problem in failure(tmp_path, plugin) and plugin.fetches == 0


def test_an_outage_uses_the_stored_listing_and_says_how_old_it_is(tmp_path: pathlib.Path) -> None:
    cache = {"cache_dir": str(tmp_path / "cache"), "cache_stale_s": 600}
    parse(tmp_path, Plugin(TWO, **cache))
    plugin = Plugin(TransportError("timed out"), **cache)
    assert list(parse(tmp_path, plugin).hosts) == ["a", "b"]
    assert len(plugin.warnings) == 1 and "s old (timed out" in plugin.warnings[0]


def test_a_fresh_stored_listing_is_used_unless_a_refresh_is_wanted(tmp_path: pathlib.Path) -> None:
    cache = {"cache_dir": str(tmp_path / "cache"), "cache_fresh_s": 600}
    parse(tmp_path, Plugin(TWO, **cache))
    second, third = Plugin(TWO, **cache), Plugin(TWO, **cache)
    parse(tmp_path, second)
    parse(tmp_path, third, cache=False)
    assert (second.fetches, third.fetches) == (0, 1)


@pytest.mark.parametrize(("name", "mine"), [("a.example.yml", True), ("example.yml", True), ("a.yml", False)])
def test_files_are_known_by_their_names(tmp_path: pathlib.Path, name: str, mine: bool) -> None:
    (tmp_path / name).write_text("plugin: muster.training.example\n")
    assert Plugin(TWO).verify_file(str(tmp_path / name)) is mine
    assert not Plugin(TWO).verify_file(str(tmp_path / "missing.example.yml"))


def test_text_of_the_source_file_may_be_a_template_and_its_error_quotes_nothing(tmp_path: pathlib.Path) -> None:
    plugin = Plugin(TWO, api_url="{{ 'https://' ~ 'x.example' }}", ca_path="{{ missing_geheim }}")
    parse(tmp_path, plugin)
    assert plugin.option("api_url") == "https://x.example"
    with pytest.raises(InputError) as caught:
        plugin.option("ca_path")
    assert "ca_path: its template cannot be evaluated" in str(caught.value) and "geheim" not in str(caught.value)


def test_text_from_elsewhere_is_not_a_template() -> None:
    plugin = Plugin(TWO)
    plugin._options["api_url"] = "{{ 1 + 1 }}"
    assert plugin.option("api_url") == "{{ 1 + 1 }}"


def test_what_clients_share_has_its_defaults(tmp_path: pathlib.Path) -> None:
    assert Plugin(TWO).access() == {
        "api_url": "", "validate_certs": True, "ca_path": "", "proxy": "env", "timeout_s": 20.0,
    }  # fmt: skip


def test_a_credential_comes_from_its_option_or_its_file(tmp_path: pathlib.Path) -> None:
    source = SecretSource("api_token", "api_token_file", ())
    place = tmp_path / "token"
    place.write_text("from-the-file-42\n")
    place.chmod(0o600)
    assert Plugin(TWO, api_token="from-the-option-42").secret(source).reveal() == "from-the-option-42"
    assert Plugin(TWO, api_token_file=str(place)).secret(source).reveal() == "from-the-file-42"
    with pytest.raises(InputError, match="api_token"):
        Plugin(TWO).secret(source)
