# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of the serve_check module; its documentation is in plugins/modules/serve_check.py."""

from __future__ import annotations

import typing as t

from ..module_utils._secrets.sources import SecretSource
from ..plugin_utils._ansible.base import WorkflowAction
from ..plugin_utils._workflows.serve_check.contract import ModelRequest
from ..plugin_utils._workflows.serve_check.reference import read_references
from ..plugin_utils._workflows.serve_check.run import Server, check_model
from ..plugin_utils._workflows.serve_check.servable import ServeRules

KEY = SecretSource("api_key", "api_key_file", ("OPENAI_API_KEY",))


class ActionModule(WorkflowAction):
    """Reads files of the controller, and asks a server."""

    OPTIONS: t.ClassVar[dict[str, dict[str, t.Any]]] = {
        "path": {"type": "path"},
        "url": {"type": "str"},
        "model": {"type": "str"},
        "prompt": {"type": "str", "default": "The licenses for most software"},
        "chat": {"type": "bool", "default": True},
        "allow_pickle": {"type": "bool", "default": False},
        "allow_remote_code": {"type": "bool", "default": False},
        "api_key": {"type": "str", "no_log": True},
        "api_key_file": {"type": "path"},
        "timeout_s": {"type": "float", "default": 60.0},
        "reference": {"type": "path"},
        "tolerance": {"type": "float", "default": 0.01},
    }

    def work(self, options: dict[str, t.Any], variables: dict[str, t.Any]) -> dict[str, t.Any]:
        """Return the result documented in the module."""
        rules = ServeRules(options["chat"], options["allow_pickle"], options["allow_remote_code"])
        folder = self.base / options["path"] if options["path"] else None
        server = None
        if options["url"]:
            key = KEY.find(options["api_key"], options["api_key_file"])
            known = read_references(self.base / options["reference"]) if options["reference"] else ()
            asked = ModelRequest(
                options["model"] or "", options["prompt"], options["chat"], known, options["tolerance"]
            )
            server = Server(options["url"], asked, key, options["timeout_s"])
        return check_model(folder, rules, server)
