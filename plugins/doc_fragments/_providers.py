# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The accounts that machines are rented from. Private; it may change without notice."""

from __future__ import annotations


class ModuleDocFragment:
    """The option that :mod:`plugin_utils._workflows.node_pool.accounts` reads."""

    DOCUMENTATION = r"""
options:
  providers:
    description:
      - The accounts to use, one for each provider.
      - A provider of machines whose environment variable is set needs no entry.
    type: list
    elements: dict
    default: []
    suboptions:
      name:
        description:
          - The provider. V(tailscale) has no machines. It is named here so that devices and keys of rented nodes are
            deleted with them.
        type: str
        required: true
        choices: [lambda, runpod, vastai, shadeform, tailscale]
      api_token:
        description:
          - The API key. Without it and O(providers[].api_token_file) the environment variable E(LAMBDA_API_KEY),
            E(RUNPOD_API_KEY), E(VAST_API_KEY), E(SHADEFORM_API_KEY), E(TAILSCALE_API_KEY) or E(HEADSCALE_API_KEY)
            is used.
        type: str
      api_token_file:
        description: A file that holds the API key.
        type: path
      account:
        description:
          - Your own name for the account. The default is a fingerprint of the API key.
          - That a machine is gone can be seen in the account that rented it only. Give a name if your keys change.
        type: str
      api_url:
        description: The address of the API, if it is not the provider's own.
        type: str
      timeout_s:
        description: The most seconds that one call may take, with the waits and repetitions in it.
        type: int
        default: 120
      validate_certs:
        description: Whether the server must prove who it is. Plain C(http) beyond this machine needs V(false).
        type: bool
        default: true
      ca_path:
        description: A file with CA certificates to trust instead of the system's.
        type: path
      proxy:
        description:
          - V(env) takes C(https_proxy), C(http_proxy), C(all_proxy) and C(no_proxy) of the environment, V(none) no
            proxy. Anything else is the address of an HTTP proxy.
        type: str
        default: env
      oauth_client_id:
        description: The id of an OAuth client, for V(tailscale).
        type: str
      oauth_client_secret:
        description:
          - The secret of the OAuth client. Without it and O(providers[].oauth_client_secret_file) the environment
            variable E(TAILSCALE_OAUTH_CLIENT_SECRET) is used.
        type: str
      oauth_client_secret_file:
        description: A file that holds the secret of the OAuth client.
        type: path
      tailnet:
        description: The tailnet, for V(tailscale). V(-) is the credential's own.
        type: str
        default: "-"
"""
