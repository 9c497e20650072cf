# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Inventory plugin for tailnets: documentation and options; the work is in ``plugin_utils``."""

from __future__ import annotations

DOCUMENTATION = r"""
name: tailscale
short_description: Devices of a tailnet, from Tailscale, headscale or the local client
version_added: 0.1.0
author: muster.training contributors (@muster-training)
description:
  - Adds the devices of a tailnet, with the record C(muster_node) and variables that begin with C(tailscale_).
  - Devices that are offline, expired or not authorized are added and marked; C(muster_reachable) is false for them.
  - Devices that others share into the tailnet are left out by default.
  - A machine that a provider's plugin lists under the same name becomes one host with the provider's record and the
    tailnet's address.
  - The file's name must end with C(tailscale.yml), C(headscale.yml) or C(tailnet.yml) (or C(.yaml)).
  - The default of O(connect_with) is V(mesh).
options:
  plugin:
    description: The name of this plugin.
    type: str
    required: true
    choices: [muster.training.tailscale]
  source:
    description:
      - V(tailscale) asks the Tailscale API, V(headscale) a headscale server at O(api_url) (API v2 from 0.30, before
        that v1), V(local) the Tailscale client on this machine, which needs no credential and sees its own peers
        only.
    type: str
    choices: [tailscale, headscale, local]
    default: tailscale
  api_token:
    description:
      - The API token; it may be a template. Without it and O(api_token_file) the environment variables
        E(TAILSCALE_API_KEY) or E(HEADSCALE_API_KEY) are used.
    type: str
  api_token_file:
    description: A file that holds the API token.
    type: path
  oauth_client_id:
    description: The id of an OAuth client with the scope C(devices:core:read), to be used instead of an API token.
    type: str
  oauth_client_secret:
    description:
      - The secret of the OAuth client; it may be a template. Without it and O(oauth_client_secret_file) the
        environment variable E(TAILSCALE_OAUTH_CLIENT_SECRET) is used.
    type: str
  oauth_client_secret_file:
    description: A file that holds the secret of the OAuth client.
    type: path
  tailnet:
    description: The tailnet; V(-) is the credential's own.
    type: str
    default: '-'
  server_filters:
    description:
      - Filters that the Tailscale API applies, by field. A list means that all its values must match. Only
        V(tailscale) knows them.
    type: dict
    default: {}
  external:
    description: Whether to add devices that others share into the tailnet.
    type: bool
    default: false
  tailscale_binary:
    description: The client to run for V(local).
    type: str
    default: tailscale
extends_documentation_fragment:
  - muster.training._inventory
  - muster.training._api
  - ansible.builtin.constructed
"""

EXAMPLES = r"""
# home.tailscale.yml: machines with a tag, reached by their tailnet address
plugin: muster.training.tailscale
oauth_client_id: k123456CNTRL
server_filters:
  tags: tag:gpu
keyed_groups:
  - key: tailscale_tags
    prefix: ''
    separator: ''
groups:
  reachable: muster_reachable

# lab.headscale.yml: a headscale server of one's own
# plugin: muster.training.tailscale
# source: headscale
# api_url: https://headscale.example.com
# filters:
#   - exclude: tailscale_expired

# here.tailscale.yml: what the client on this machine sees
# plugin: muster.training.tailscale
# source: local
# connect_with: [magicdns, mesh]
"""

import datetime
import functools

from ..plugin_utils._ansible import bytecode

with bytecode.kept():
    from ..module_utils._secrets.sources import SecretSource
    from ..plugin_utils._inventory.base import InventorySource, MusterInventory
    from ..plugin_utils._providers.connection import ProviderConnection
    from ..plugin_utils._providers.tailscale import client, local, mapping

TOKEN = SecretSource("api_token", "api_token_file", ("TAILSCALE_API_KEY", "HEADSCALE_API_KEY"))
OAUTH = SecretSource("oauth_client_secret", "oauth_client_secret_file", ("TAILSCALE_OAUTH_CLIENT_SECRET",))


class InventoryModule(MusterInventory):
    """A tailnet as a source of hosts."""

    NAME = "muster.training.tailscale"
    ENDINGS = tuple(f"{name}.{end}" for name in ("tailscale", "headscale", "tailnet") for end in ("yml", "yaml"))
    WAYS = ("mesh",)

    def source(self) -> InventorySource:
        listing = client.choose_listing(
            self.option("source"),
            lambda: ProviderConnection(
                self.secret(OAUTH if self.option("oauth_client_id") else TOKEN), **self.access()
            ),
            client_id=self.option("oauth_client_id") or "",
            tailnet=self.option("tailnet"),
            filters=self.option("server_filters"),
            run_local=functools.partial(local.list_devices, self.option("tailscale_binary")),
        )
        now, external = datetime.datetime.now(datetime.UTC), self.option("external")
        return InventorySource(
            api=self.option("api_url") or self.option("source"),
            account=listing.account,
            fetch=lambda: [raw for raw in listing.fetch() if external or raw.get("isExternal") is not True],
            to_host=lambda raw: mapping.to_host(raw, listing.account, now),
            key=(*listing.key, str(external)),
        )
