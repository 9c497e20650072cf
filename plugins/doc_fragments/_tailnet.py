# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Access to one tailnet. Private; it may change without notice."""

from __future__ import annotations


class ModuleDocFragment:
    """The options that :func:`plugin_utils._workflows.node_pool.accounts.tailscale` reads beside those of every API."""

    DOCUMENTATION = r"""
options:
  api_token:
    description:
      - The API token. Without it and O(api_token_file) the environment variables E(TAILSCALE_API_KEY) or
        E(HEADSCALE_API_KEY) are used.
    type: str
  api_token_file:
    description: A file that holds the API token.
    type: path
  account:
    description:
      - Your own name for the account. The default is a fingerprint of the credential.
    type: str
  oauth_client_id:
    description: The id of an OAuth client. Its secret is used instead of an API token.
    type: str
  oauth_client_secret:
    description:
      - The secret of the OAuth client. Without it and O(oauth_client_secret_file) the environment variable
        E(TAILSCALE_OAUTH_CLIENT_SECRET) is used.
    type: str
  oauth_client_secret_file:
    description: A file that holds the secret of the OAuth client.
    type: path
  tailnet:
    description: The tailnet. V(-) is the credential's own.
    type: str
    default: "-"
"""
