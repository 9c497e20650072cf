# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The action of training_job_info takes the options that its module documents."""

from __future__ import annotations

import yaml

from ansible_collections.muster.training.plugins.action.training_job_info import ActionModule
from ansible_collections.muster.training.plugins.modules import training_job_info
from ansible_collections.muster.training.plugins.plugin_utils._ansible.base import STATE_HOME


def test_the_options_are_those_of_the_documentation() -> None:
    documented = yaml.safe_load(training_job_info.DOCUMENTATION)["options"]
    assert {*documented, *STATE_HOME} == set(ActionModule.OPTIONS)
    for name, option in documented.items():
        for word in ("type", "default", "elements"):
            assert option.get(word) == ActionModule.OPTIONS[name].get(word), name
