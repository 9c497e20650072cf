# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the serve_check action; the work is done in plugins/action/serve_check.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: serve_check
version_added: 0.1.0
short_description: Check whether a trained model can be served, and whether a server answers
description:
  - With O(path) it checks a folder on the controller. It has to be whole, with C(config.json), a tokenizer, weights as
    safetensors whose index and headers fit, types that servers run, and a chat template. Adapters and checkpoints of
    DCP, FSDP, DeepSpeed and Megatron are refused with what converts them. Nothing is loaded and no code of it is run.
  - With O(url) it asks a server for the clauses of the OpenAI-compatible API, as NIM, vLLM, SGLang and
    C(transformers serve) have it. Each clause is a check with what was seen.
  - The module succeeds where a check fails; RV(ok) says so. The playbook C(serve_check) fails.
options:
  path:
    description: The folder with the model. Relative to the folder of C(ansible-playbook).
    type: path
  url:
    description: The address of the server, such as V(http://192.0.2.11:8000), with or without C(/v1).
    type: str
  model:
    description: The model as the server calls it. Needed with O(url).
    type: str
  prompt:
    description: The prompt; eight tokens are generated each time.
    type: str
    default: The licenses for most software
  chat:
    description: Whether chat has to work; otherwise only completions.
    type: bool
    default: true
  allow_pickle:
    description: Whether weights as pickle (C(.bin), C(.pt)) are taken. Loading one runs code that is in it.
    type: bool
    default: false
  allow_remote_code:
    description: Whether a model with Python files of its own (C(auto_map)) is taken.
    type: bool
    default: false
  api_key:
    description:
      - The API key of the server. Without it and O(api_key_file) the environment variable E(OPENAI_API_KEY) is used.
      - A server that wants none needs none. With a key the address has to be HTTPS, or this machine.
    type: str
  api_key_file:
    description: A file that holds the API key.
    type: path
  timeout_s:
    description: Seconds for each request.
    type: float
    default: 60.0
  reference:
    description:
      - A file with what the training side makes of prompts, a line of JSON each with C(prompt), C(token) (the first one
        that follows) and C(logprob). C(examples/serving/reference_logprobs.py) writes it from the folder of the model.
      - With it, the check C(logprobs) compares the server's first token after each prompt and its log-probability.
    type: path
  tolerance:
    description: How far log-probabilities may differ, as natural logarithms. Servers of other precision need more.
    type: float
    default: 0.01
extends_documentation_fragment:
  - muster.training._attributes
  - muster.training._attributes.full
seealso:
  - module: muster.training.training_job_fetch
author:
  - muster.training contributors (@muster-training)
"""

EXAMPLES = r"""
- name: Check the model that was fetched, and the server that has it
  muster.training.serve_check:
    path: ./model
    url: http://192.0.2.11:8000
    model: char-lm
  register: served

- name: Show each check
  ansible.builtin.debug:
    var: served.table
"""

RETURN = r"""
ok:
  description: Whether every check passed.
  returned: success
  type: bool
exit_code:
  description: 0 where every check passed, else 1.
  returned: success
  type: int
checks:
  description: Each check with name, ok, value (what was seen), expected, problem and fix.
  returned: success
  type: list
  elements: dict
failures:
  description: Names of the checks that failed.
  returned: success
  type: list
  elements: str
table:
  description: A line for each check.
  returned: success
  type: list
  elements: str
"""
