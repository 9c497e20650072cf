# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The base of the inventory plugins: options, credentials, the listing, names, connection and groups.

A plugin names itself and says where its hosts come from (:meth:`MusterInventory.source`); everything else is here.
"""

from __future__ import annotations

import dataclasses
import os
import time
import typing as t
from collections.abc import Callable, Mapping

from ansible import constants as C
from ansible.errors import AnsibleError, AnsibleParserError
from ansible.inventory.data import InventoryData
from ansible.inventory.host import Host
from ansible.parsing.dataloader import DataLoader
from ansible.plugins.inventory import BaseInventoryPlugin, Constructable
from ansible.template import is_trusted_as_template

from ...module_utils._model.errors import InputError, MusterError
from ...module_utils._secrets.scrubber import scrub
from ...module_utils._secrets.secret import Secret
from ...module_utils._secrets.sources import SecretSource
from .._providers.node_record import ProviderHost
from .add_hosts import HostAdder, filter_hosts
from .cache import CachedResponse, CacheRule, JsonObject, default_folder, file_name, read_listing
from .source_file import check_booleans, check_file, check_keys

PROBLEMS = "muster_inventory_problems"
_KEYED = ("key", "prefix", "separator", "parent_group", "default_value", "trailing_separator")


@dataclasses.dataclass(frozen=True, slots=True)
class InventorySource:
    """How to list the hosts of one inventory source.

    ``api`` is shown in messages. ``fetch`` returns the whitelisted listing, ``to_host`` maps one item of it; ``key``
    holds everything on which the listing depends, besides ``api`` and ``account``.
    """

    api: str
    account: str
    fetch: Callable[[], list[JsonObject]]
    to_host: Callable[[JsonObject], ProviderHost]
    key: tuple[str, ...] = ()


class MusterInventory(BaseInventoryPlugin, Constructable):
    """An inventory plugin without a provider.

    ``ENDINGS`` are the ends of file names that it accepts; ``WAYS`` is the default of ``connect_with``.
    """

    NAME = ""
    ENDINGS: tuple[str, ...] = ()
    WAYS: tuple[str, ...] = ("public",)

    def source(self) -> InventorySource:
        """Return where the hosts come from; called when the options have been read."""
        raise NotImplementedError

    def verify_file(self, path: str) -> bool:
        """Accept files whose names end with one of ``ENDINGS``."""
        return bool(t.cast(t.Any, super()).verify_file(path)) and os.path.basename(path).endswith(self.ENDINGS)

    def parse(self, inventory: InventoryData, loader: DataLoader, path: str, cache: bool = True) -> None:
        """Fill the inventory, or fail with one line; an outage is never taken for an empty account."""
        super().parse(inventory, loader, path, cache)
        try:
            self._fill(self._configure(path), cache)
        except MusterError as exc:
            problem = str(exc)
        except AnsibleError as exc:
            problem = exc.message
        except Exception as exc:
            # A defect of this plugin. The text of an unknown exception may quote a secret.
            problem = f"internal error ({type(exc).__name__}). Please report it"
        else:
            return
        self._fail(scrub(f"{os.path.basename(path)}: {' '.join(problem.split())}"))

    def _fail(self, problem: str) -> t.NoReturn:
        problems = self.inventory.groups["all"].vars.get(PROBLEMS, []) if self.inventory else []
        if self.inventory:
            self.inventory.set_variable("all", PROBLEMS, [*problems, problem])
        if self._options.get("on_error") != "warn":
            # Otherwise ansible-core only warns and continues; a play would then act on a part of the fleet.
            t.cast(t.Any, C).INVENTORY_ANY_UNPARSED_IS_FAILED = True
        raise AnsibleParserError(problem) from None

    def option(self, name: str) -> t.Any:
        """Return an option; text from the source file may be a template."""
        value = t.cast(t.Any, self).get_option(name)
        if not isinstance(value, str) or not is_trusted_as_template(value):
            return value
        try:
            return self.templar.template(value)
        except AnsibleError:
            # The message of the error would quote the line, which may hold a credential.
            raise InputError(name, "its template cannot be evaluated") from None

    def secret(self, source: SecretSource) -> Secret:
        """Return the credential that ``source`` describes."""
        return source.need(self.option(source.option), self.option(source.file_option) if source.file_option else None)

    def access(self) -> dict[str, t.Any]:
        """Return the options that all clients of an API share."""
        return {
            "api_url": self.option("api_url") or "",
            "validate_certs": self.option("validate_certs"),
            "ca_path": self.option("ca_path") or "",
            "proxy": self.option("proxy") or "env",
            "timeout_s": float(self.option("timeout_s")),
        }

    def _configure(self, path: str) -> InventorySource:
        """Read and check the options."""
        check_file(path)
        options = t.cast(t.Any, self)._read_config_data(path)
        check_keys(options, self.option_definitions)
        check_booleans(options, self.option_definitions)
        for entry in self.option("keyed_groups") or []:
            if isinstance(entry, Mapping):
                check_keys(entry, _KEYED)
        return self.source()

    def _fill(self, source: InventorySource, cache: bool) -> None:
        response = self._read_listing(source, cache)
        hosts = [source.to_host(item) for item in response.listing]
        self._add(filter_hosts(hosts, self.option("states"), self.option("filters") or [], self._evaluate), response)

    def _evaluate(self, expression: object, variables: Mapping[str, object]) -> object:
        """Return the value of an expression for ``variables``; raise whatever Jinja raises."""
        return t.cast(t.Any, self)._compose(expression, variables)

    def _read_listing(self, source: InventorySource, cache: bool) -> CachedResponse:
        folder = self.option("cache_dir") or default_folder(os.environ)
        rule = CacheRule(os.path.expanduser(folder), self.option("cache_fresh_s"), self.option("cache_stale_s"))
        name = file_name(self.NAME, (source.api, source.account, *source.key))
        response = read_listing(rule, name, source.fetch, time.time, use_fresh=cache)
        if response.problem:
            self.display.warning(
                scrub(f"{source.api}: using a listing that is {response.age_s:.0f} s old ({response.problem})")
            )
        return response

    def _add(self, hosts: list[ProviderHost], response: CachedResponse) -> None:
        adder = HostAdder(
            self.inventory,
            ways=tuple(self.option("connect_with") or self.WAYS),
            hostname=t.cast(t.Any, self).get_option("hostname"),
            evaluate=self._evaluate,
            keys_folder=self.option("known_hosts_dir") or "",
            group=self.option("group") or "",
            common={"muster_inventory_age_s": int(response.age_s)} if response.age_s else {},
        )
        for host in adder.add(hosts):
            self._construct(host)
        if adder.shared:
            names = ", ".join(adder.shared[:5])
            self.display.warning(f"{self.NAME}: several machines have the same name; all but one got a suffix: {names}")

    def _construct(self, host: Host) -> None:
        """Give ``host`` its composed variables and put it into its groups."""
        # Constructable's helpers and options have no types.
        plugin, strict = t.cast(t.Any, self), bool(self.option("strict"))
        plugin._set_composite_vars(self.option("compose"), host.get_vars(), host.name, strict)
        plugin._add_host_to_composed_groups(self.option("groups"), {}, host.name, strict)
        plugin._add_host_to_keyed_groups(self.option("keyed_groups"), {}, host.name, strict)
