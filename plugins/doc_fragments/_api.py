# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Options that all clients of a provider's API share. Private; it may change without notice."""

from __future__ import annotations


class ModuleDocFragment:
    """The options from which :class:`plugin_utils._providers.connection.Access` is made."""

    DOCUMENTATION = r"""
options:
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
      - V(env) takes C(https_proxy), C(http_proxy), C(all_proxy) and C(no_proxy) of the environment, V(none) no proxy.
        Anything else is the address of an HTTP proxy.
    type: str
    default: env
"""
