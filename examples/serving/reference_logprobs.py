# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a model makes of prompts, for the playbook serve_check.

``reference_logprobs.py FOLDER [PROMPTS] > reference.jsonl``: PROMPTS is a text file with a prompt a line; without it
there are sixteen of ours. Use prompts that the training did not see, and the interpreter of the training.
"""

from __future__ import annotations

import json
import pathlib
import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

PROMPTS = (
    *("The capital of France is", "Water boils at", "def fibonacci(n):", "2 + 2 =", "Once upon a time"),
    *("The opposite of hot", "import numpy as", "Dear Sir or Madam,", "The first president of the United States"),
    *("To be or not to", "A triangle has", "SELECT name FROM", "Das Wetter ist heute"),
    *("The licenses for most software", "1, 1, 2, 3, 5, 8,", "In conclusion,"),
)


def main(folder: str, prompts: tuple[str, ...]) -> None:
    """Print a line for each prompt: the likeliest token that follows it, and its log-probability."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    for prompt in prompts:
        given = tokenizer(prompt, return_tensors="pt")
        with torch.no_grad():
            following = model(given["input_ids"]).logits[0, -1].float().log_softmax(-1)
        best = int(following.argmax())
        line = {"prompt": prompt, "token": tokenizer.decode([best]), "logprob": following[best].item()}
        print(json.dumps(line, ensure_ascii=False))


if __name__ == "__main__":
    lines = pathlib.Path(sys.argv[2]).read_text(encoding="utf-8").splitlines() if len(sys.argv) > 2 else []
    main(sys.argv[1], tuple(line for line in lines if line.strip()) or PROMPTS)
