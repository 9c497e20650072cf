# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Shows of a playbook what there is to read: its plays, what changed, what tasks show, and each error once."""

from __future__ import annotations

DOCUMENTATION = r"""
name: brief
type: stdout
version_added: 0.1.0
short_description: Show a playbook in few lines
description:
  - Shows a line for each play that does anything, a line for each task that changed something, what tasks show
    (M(ansible.builtin.debug)) without quotes, and each error once. What is skipped or unchanged is not shown.
  - Enable it with C(stdout_callback = muster.training.brief). C(make venv) does so in the environment of a clone;
    C(ANSIBLE_STDOUT_CALLBACK=default) shows everything.
author:
  - muster.training contributors (@muster-training)
"""

EXAMPLES = r"""
# ansible.cfg
# [defaults]
# stdout_callback = muster.training.brief
"""

from ..plugin_utils._ansible.brief_output import BriefOutput


class CallbackModule(BriefOutput):
    """Prints by Display, as the progress of tasks does."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "stdout"
    CALLBACK_NAME = "muster.training.brief"
