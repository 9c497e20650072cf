# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the training_launch_info action; the work is done in plugins/action/training_launch_info.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: training_launch_info
version_added: 0.1.0
short_description: Make the launch file of a training run
description:
  - Returns the job of a recorded run with its code and image by digest, as a file that another person trains with the
    variable C(muster_launch) of the playbook C(train). Writes nothing; the playbook C(launch) writes it.
  - References to secrets, folders of this controller and the place where the run ran are left out. RV(needs) says what
    the person gives who launches it.
  - A run whose code or image has no known digest is refused, and so is one with a variable in C(env) that has a
    secret's name.
options:
  run_id:
    description: Name of the run; the default is the newest one.
    type: str
  path:
    description: Where the file is to be, a file or a folder that exists. Relative to the folder of C(ansible-playbook).
    type: path
    default: .
  url:
    description: The address behind HTTPS from which the file will be read, for RV(link).
    type: str
  devcontainer:
    description: Folder of a project for which a dev container of the job's image is made.
    type: path
extends_documentation_fragment:
  - muster.training._attributes
  - muster.training._attributes.full
  - muster.training._state_home
seealso:
  - module: muster.training.training_template_info
author:
  - muster.training contributors (@muster-training)
"""

EXAMPLES = r"""
- name: Make the launch file of the newest run
  muster.training.training_launch_info:
    url: https://files.example.org/char-lm.launch.yml
  register: launch

- name: Write it
  ansible.builtin.copy:
    content: "{{ launch.text }}"
    dest: "{{ launch.path }}"
    mode: "0644"
  delegate_to: localhost
"""

RETURN = r"""
run_id:
  description: The run that it is made of.
  returned: success
  type: str
text:
  description: The launch file.
  returned: success
  type: str
path:
  description: Where it is to be.
  returned: success
  type: str
sha256:
  description: SHA-256 of RV(text).
  returned: success
  type: str
needs:
  description: What the person gives who launches it, a line each.
  returned: success
  type: list
  elements: str
link:
  description: O(url) with the digest, which the variable C(muster_launch) takes.
  returned: when O(url) is given
  type: str
devcontainer_text:
  description: The C(devcontainer.json) of the job's image, as containers.dev describes it.
  returned: when O(devcontainer) is given
  type: str
devcontainer_path:
  description: Where it is to be.
  returned: when O(devcontainer) is given
  type: str
"""
