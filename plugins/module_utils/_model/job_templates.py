# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The job templates that the collection ships. A team's own templates are YAML files in ``muster_template_paths``."""

from __future__ import annotations

import typing as t

from . import validators
from .errors import InputError

PRESETS: dict[str, dict[str, t.Any]] = {
    "pytorch_ddp": {
        "launcher": "torchrun",
        "checkpoints": {"resume": "auto"},
        "restart": {"max_crashes": 3, "max_lost_nodes": 3},
        "requires": {"torch": ">=2.1"},
    },
    "pytorch_fsdp": {
        "launcher": "torchrun",
        "checkpoints": {"format": "dcp", "resume": "auto", "grace_s": 120},
        "restart": {"max_crashes": 3, "max_lost_nodes": 3},
        "requires": {"torch": ">=2.4"},
    },
    "deepspeed_zero3": {
        "launcher": "deepspeed",
        "checkpoints": {"resume": "auto", "grace_s": 120},
        "restart": {"max_crashes": 3, "max_lost_nodes": 3},
        "requires": {"torch": ">=2.1", "deepspeed": ""},
        "deepspeed_config": {
            "train_micro_batch_size_per_gpu": 1,
            "gradient_accumulation_steps": 1,
            "gradient_clipping": 1.0,
            "bf16": {"enabled": True},
            "zero_optimization": {"stage": 3, "overlap_comm": True, "contiguous_gradients": True},
        },
    },
    "accelerate": {
        "launcher": "accelerate",
        "checkpoints": {"resume": "auto"},
        "restart": {"max_crashes": 3, "max_lost_nodes": 3},
        "requires": {"accelerate": ""},
    },
    "huggingface_finetune": {
        "launcher": "accelerate",
        "checkpoints": {"resume": "auto", "grace_s": 120},
        "restart": {"max_crashes": 3, "max_lost_nodes": 3},
        "requires": {"torch": ">=2.4", "accelerate": "", "transformers": ">=5.0", "peft": ""},
        # One tokenizer thread in each rank: the ranks' data loaders fork.
        "env": {"TOKENIZERS_PARALLELISM": "false"},
    },
    "megatron": {
        "launcher": "megatron",
        "checkpoints": {"format": "megatron", "resume": "auto", "grace_s": 120},
        "restart": {"max_crashes": 3, "max_lost_nodes": 3},
        "requires": {"torch": ">=2.4"},
    },
    "mpi4py": {
        "launcher": "mpi",
        "checkpoints": {"resume": "auto"},
        "restart": {"max_crashes": 3, "max_lost_nodes": 3},
        "requires": {"mpi4py": ""},
    },
}
_NO_PRESETS = {
    "horovod": (
        "horovod is no longer a template: Horovod has had no release since 2023 and does not build with PyTorch 2.15",
        "Use template: pytorch_ddp, or mpi4py for a program that averages over MPI itself",
    ),
}


def apply_template(
    options: t.Mapping[str, t.Any], presets: t.Mapping[str, t.Mapping[str, t.Any]]
) -> t.Mapping[str, t.Any]:
    """Return the job's own keys laid over those of the template that they name, if they name one.

    :param presets: template name -> partial job.
    :raises InputError: when there is no such template.
    """
    if options.get("template") is None:
        return options
    template = validators.text(options["template"], "job.template")
    if template in presets:
        return merge(validators.dictionary(presets[template], f"job.template {template}"), options)
    if template in _NO_PRESETS:
        problem, fix = _NO_PRESETS[template]
        raise InputError("job.template", problem, fix)
    near = validators.find_nearest(template, presets)
    hint = f"Did you mean '{near}'?" if near else f"Templates are: {', '.join(sorted(presets))}"
    raise InputError("job.template", f"template '{template}' does not exist", hint)


def merge(base: t.Mapping[str, t.Any], own: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Return ``base`` overlaid by ``own``: mappings are merged key by key, everything else is replaced."""
    result = dict(base)
    for key, value in own.items():
        base_value = result.get(key)
        both = isinstance(base_value, t.Mapping) and isinstance(value, t.Mapping)
        result[key] = merge(t.cast(t.Any, base_value), value) if both else value
    return result
