# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the training_template_info action; the work is done in plugins/action/training_template_info.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: training_template_info
version_added: 0.1.0
short_description: List the templates of the catalogue, and fill one
description:
  - Reads the templates that the collection ships and those of O(paths) on the controller. Changes nothing.
  - A template is a YAML file C(*.yml) with C(name), C(version), C(description), C(inputs) and C(job). One with
    C(kind=services) has C(services), the entries of the option C(services) of M(muster.training.service_binding), or
    C(variables) of the role C(exporter_stack), in place of C(job).
  - Answers are put in as they are. Text that Jinja would evaluate is refused, and so are control characters.
options:
  paths:
    description:
      - Folders with templates of your own. Two templates of one name are refused.
    type: list
    elements: path
    default: []
  sources:
    description:
      - More sources of templates, a list of mappings. Each has C(path), C(git) or C(url). What is fetched is not kept.
      - C(path) is a folder. C(git) is a repository with C(commit) (whole) and, where you like, C(tag), which must lead
        to it, and C(folder), the folder with the templates. C(url) is one template file behind HTTPS with its
        C(sha256).
      - C(secret_ref) says where the credential of a repository or file behind HTTPS is, with C(from) (V(env), V(file)
        or a service of secrets), C(path) and C(keys). It is a C(token), or C(username) and C(password). The default
        names are E(CATALOGUE_TOKEN), E(CATALOGUE_USERNAME) and E(CATALOGUE_PASSWORD). C(ca) is a file with the
        server's own authority.
    type: raw
  name:
    description: The template to describe, and to fill where O(inputs) or O(inputs_variable) is set.
    type: str
  digest:
    description: The C(digest) that the template must have; another one is refused.
    type: str
  playbook:
    description: The playbook that takes the filled template. A template that is for another one is refused.
    type: str
    choices: [train, services, exporter_stack]
  inputs:
    description:
      - The answers by the names of the inputs. An input of type C(secret) takes a reference such as
        C(from=env, key=HF_TOKEN) as a mapping, never the value.
    type: dict
  inputs_variable:
    description:
      - The name of a variable with the answers, used in place of O(inputs). It is read as it was written, so that
        Ansible evaluates nothing in it. Without such a variable all inputs have their defaults.
      - Variables of that name with C(_) and the name of an input, such as those of a survey, are answers, too. An empty
        one does not count, and one input in both places is refused.
    type: str
  job:
    description:
      - Keys of the job that are laid over those of the template; mappings are merged key by key. Refused for services.
      - With O(launch) those alone that say where the job runs and saves (C(placement), C(python), C(checkpoints),
        C(mounts), C(tracking), C(monitoring), C(release), C(max_cost_usd), C(ttl_after_finished_s), C(timeout_s)).
    type: dict
  launch:
    description:
      - A launch file of M(muster.training.training_launch_info), whose job is returned in place of a template's.
      - It is a file, or its link C(https://…#sha256=DIGEST); another content than the digest says is refused.
    type: str
  launch_code:
    description:
      - The folder with the code, where O(launch) asks for one.
      - Another content than its digest says is refused when the job is started.
    type: path
  launch_datasets:
    description: By the name of each dataset that O(launch) asks for the folder on the controller with it.
    type: dict
    default: {}
  launch_secrets:
    description: By the name of each secret that O(launch) asks for a reference such as C(from=env, key=HF_TOKEN).
    type: dict
    default: {}
extends_documentation_fragment:
  - muster.training._attributes
  - muster.training._attributes.full
seealso:
  - module: muster.training.training_job
author:
  - muster.training contributors (@muster-training)
"""

EXAMPLES = r"""
- name: List the catalogue
  muster.training.training_template_info:
  register: catalogue
  run_once: true

- name: Fill a template
  muster.training.training_template_info:
    name: pytorch-ddp
    inputs:
      code: ./my_training
      nnodes: 2
      hf_token: {from: env, key: HF_TOKEN}
  register: filled
  run_once: true

- name: Run its job
  muster.training.training_job:
    job: "{{ filled.job }}"
  run_once: true
"""

RETURN = r"""
templates:
  description:
    - One mapping for each template with C(name), C(version), C(description), C(kind) (V(job) or V(services)),
      C(playbook) (what takes it), C(path), C(digest) (SHA-256 of the content) and C(inputs).
    - Each input has C(type) (C(text), C(int), C(float), C(bool) or C(secret)), C(default), C(required), C(min), C(max),
      C(choices), C(pattern), C(help) and, for a secret, the C(name) under which the program gets it.
  returned: success
  type: list
  elements: dict
job:
  description: The filled job with the keys of O(muster.training.training_job#module:job).
  returned: when O(name) and the answers of a template of jobs are given, or O(launch)
  type: dict
launch_needs:
  description: What O(launch) asks for and which services it names, a line each.
  returned: when O(launch) is given
  type: list
  elements: str
services:
  description: The filled entries, with the keys of O(muster.training.service_binding#module:services).
  returned: when the template has services and the answers are given
  type: list
  elements: dict
variables:
  description: The filled variables of the role C(exporter_stack).
  returned: when the template has variables and the answers are given
  type: dict
catalogue_template:
  description:
    - Of a job the C(name), C(version) and C(digest) of the template, its answers (C(inputs)), O(job) (C(overrides))
      and where it came from (C(source), empty for one of the collection).
    - Of a launch file the one it was made with, where the catalogue has that very template and it makes this job.
  returned: with RV(job)
  type: dict
survey_spec:
  description:
    - A survey of AWX with a question for each input but secrets, as its API takes it at C(survey_spec/). The variables
      are C(muster_inputs_NAME), of services C(muster_service_inputs_NAME).
  returned: when O(name) is given and the template asks for anything but secrets
  type: dict
train_questions:
  description: The questions of such a survey for variables of the playbook C(train), to ask with those of any template.
  returned: success
  type: list
  elements: dict
table:
  description: The templates, or the inputs of the template O(name), as lines for people.
  returned: success
  type: list
  elements: str
"""
