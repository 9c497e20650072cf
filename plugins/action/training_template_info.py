# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of the training_template_info module; its documentation is in plugins/modules."""

from __future__ import annotations

import typing as t

from ..plugin_utils._ansible.base import WorkflowAction


class ActionModule(WorkflowAction):
    """Reads the catalogue on the controller."""

    OPTIONS: t.ClassVar[dict[str, dict[str, t.Any]]] = {
        "paths": {"type": "list", "elements": "path", "default": []},
        # Not a list here: the model itself says, by name, what is wrong with an entry.
        "sources": {"type": "raw"},
        "name": {"type": "str"},
        "digest": {"type": "str"},
        "playbook": {"type": "str", "choices": ["train", "services", "exporter_stack"]},
        "inputs": {"type": "dict"},
        "inputs_variable": {"type": "str"},
        "job": {"type": "dict"},
        "launch": {"type": "str"},
        "launch_code": {"type": "path"},
        "launch_datasets": {"type": "dict", "default": {}},
        "launch_secrets": {"type": "dict", "default": {}},
    }

    def work(self, options: dict[str, t.Any], variables: dict[str, t.Any]) -> dict[str, object]:
        """Return the result documented in the module."""
        # Late: Ansible loads this class in each play of train and services, and most skip the task.
        from ..module_utils._model.job_catalogue import join_answers
        from ..module_utils._model.launch_file import LaunchAnswers
        from ..plugin_utils._workflows.training_template_info.catalogue import TemplateRequest, read_catalogue

        variable = options["inputs_variable"]
        # A variable is taken as it was written: Ansible has not evaluated it.
        inputs = join_answers(variable, variables) if variable else options["inputs"]
        answers = LaunchAnswers(options["launch_code"], options["launch_datasets"], options["launch_secrets"])
        asked = TemplateRequest(
            options["name"],
            options["digest"],
            inputs,
            variable or "inputs",
            options["job"],
            options["playbook"],
            options["launch"],
            answers,
        )
        return read_catalogue(options["paths"], self.base, asked, options["sources"])
