# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The job templates that the collection ships. A team's own templates are YAML files in ``muster_template_paths``.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import typing as t

PRESETS: dict[str, dict[str, t.Any]] = {
    "pytorch_ddp": {
        "launcher": "torchrun",
        "checkpoints": {"format": "files", "resume": "auto"},
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
        "checkpoints": {"format": "files", "resume": "auto", "grace_s": 120},
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
        "checkpoints": {"format": "files", "resume": "auto"},
        "restart": {"max_crashes": 3, "max_lost_nodes": 3},
        "requires": {"accelerate": ""},
    },
    "megatron": {
        "launcher": "megatron",
        "checkpoints": {"format": "dcp", "resume": "auto", "grace_s": 120},
        "restart": {"max_crashes": 3, "max_lost_nodes": 3},
        "requires": {"torch": ">=2.4"},
    },
    "horovod": {
        "launcher": "mpi",
        "checkpoints": {"format": "files", "resume": "auto"},
        "restart": {"max_crashes": 3, "max_lost_nodes": 3},
        "requires": {"horovod": ""},
    },
}
