# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Train a small GPT of Megatron Core with tensor and data parallel ranks; the job's preset is ``megatron``.

It takes the options of Megatron-LM that ``job.parallel`` becomes, and saves as Megatron-LM does: a folder
``iter_0000040`` with a part of each tensor parallel rank, and last the file that names it. Without GPUs it trains over
gloo, with an attention of its own by Megatron Core's ModuleSpec.
"""

from __future__ import annotations

import argparse
import os
import shutil
import time
import typing as t
from pathlib import Path

import progress
import torch
from megatron.core import parallel_state
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.transformer.module import MegatronModule
from megatron.core.transformer.transformer_config import TransformerConfig

LENGTH, WORDS = 32, 64
TRACKER = "latest_checkpointed_iteration.txt"


class Attention(MegatronModule):
    """Causal attention by torch itself: Megatron Core's own needs CUDA."""

    def __init__(self, config: TransformerConfig, *_given: object, **_more: object) -> None:
        """Take what a core attention is given."""
        super().__init__(config=config)

    def forward(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *_given: object, **_more: object
    ) -> torch.Tensor:
        """Return the attention of (length, batch, heads, size) as (length, batch, heads x size)."""
        parts = (part.permute(1, 2, 0, 3) for part in (query, key, value))
        found = torch.nn.functional.scaled_dot_product_attention(*parts, is_causal=True)
        return found.permute(2, 0, 1, 3).flatten(2)


def parse_options() -> argparse.Namespace:
    """Return the options of the command line."""
    parser = progress.options(__doc__ or "")
    parser.add_argument("--tensor-model-parallel-size", type=int, default=1)
    parser.add_argument("--micro-batch-size", type=int, default=2)
    parser.add_argument("--global-batch-size", type=int, default=8)
    parser.add_argument("--save", type=Path, required=True)
    parser.add_argument("--load", type=Path)
    return parser.parse_args()


def build_model(tensor: int) -> GPTModel:
    """Return this rank's part of the model. The whole one is made on each rank, so that its parts fit together."""
    torch.manual_seed(0)
    on_cpu = {"bias_dropout_fusion": False, "masked_softmax_fusion": False, "gradient_accumulation_fusion": False}
    config = TransformerConfig(
        num_layers=2,
        hidden_size=32,
        num_attention_heads=4,
        use_cpu_initialization=True,
        tensor_model_parallel_size=tensor,
        attention_dropout=0.0,
        hidden_dropout=0.0,
        persist_layer_norm=False,
        bias_activation_fusion=False,
        apply_rope_fusion=False,
        **on_cpu,
    )
    spec = get_gpt_layer_local_spec()
    spec.submodules.self_attention.submodules.core_attention = Attention
    return GPTModel(config=config, transformer_layer_spec=spec, vocab_size=WORDS, max_sequence_length=LENGTH)


def make_batch(step: int, sample: int, size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return words and what follows each of them: they count on by one, from the same ones for the same numbers."""
    begin = torch.randint(0, WORDS, (size, 1), generator=torch.Generator().manual_seed(step * 1000 + sample))
    words = (begin + torch.arange(LENGTH + 1)) % WORDS
    return words[:, :-1], words[:, 1:]


def part_of(folder: Path, step: int) -> Path:
    """Return the file of this rank's part of a checkpoint."""
    rank = parallel_state.get_tensor_model_parallel_rank()
    return folder / f"iter_{step:07d}" / f"mp_rank_{rank:02d}" / "model_optim_rng.pt"


def save(folder: Path, step: int, state: dict[str, t.Any]) -> None:
    """Save the parts of a step, and name it when all are there; of the older ones, as many as the job keeps stay."""
    if parallel_state.get_data_parallel_rank() == 0:
        place = part_of(folder, step)
        place.parent.mkdir(parents=True, exist_ok=True)
        torch.save(state, place)
    torch.distributed.barrier()
    if torch.distributed.get_rank() == 0:
        staged = folder / f".{TRACKER}"
        staged.write_text(str(step), encoding="utf-8")
        staged.replace(folder / TRACKER)
        progress.note(checkpoint_step=step, path=str(folder / f"iter_{step:07d}"))
        for older in sorted(folder.glob("iter_*"))[: -int(os.environ.get("MUSTER_CHECKPOINT_KEEP", "3"))]:
            shutil.rmtree(older, ignore_errors=True)


def main() -> None:
    """Train from the newest checkpoint to the last step."""
    options = parse_options()
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo")
    rank, ranks = torch.distributed.get_rank(), torch.distributed.get_world_size()
    parallel_state.initialize_model_parallel(options.tensor_model_parallel_size)
    copies, copy = parallel_state.get_data_parallel_world_size(), parallel_state.get_data_parallel_rank()
    model = build_model(options.tensor_model_parallel_size)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    tracker, step = (options.load or options.save) / TRACKER, 0
    if options.load and tracker.exists():
        step = int(tracker.read_text(encoding="utf-8"))
        state = torch.load(part_of(options.load, step), weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
    if rank == 0:
        progress.note(resumed_from_step=step, world_size=ranks, tensor=options.tensor_model_parallel_size, data=copies)
    mask = torch.triu(torch.ones(1, 1, LENGTH, LENGTH), 1) > 0
    passes = options.global_batch_size // (options.micro_batch_size * copies)
    while step < options.steps:
        started, total = time.monotonic(), torch.zeros(())
        optimizer.zero_grad()
        for number in range(passes):
            words, following = make_batch(step, number * copies + copy, options.micro_batch_size)
            places = torch.arange(LENGTH).expand_as(words)
            loss = model(words, places, mask, labels=following).float().mean() / passes
            loss.backward()
            total += loss.detach()
        for parameter in model.parameters():
            if parameter.grad is not None:
                torch.distributed.all_reduce(parameter.grad, group=parallel_state.get_data_parallel_group())
                parameter.grad /= copies
        optimizer.step()
        step += 1
        torch.distributed.all_reduce(total, group=parallel_state.get_data_parallel_group())
        progress.keep_pace(started, options.step_time_min)
        if rank == 0:
            progress.note(step=step, loss=total.item() / copies)
        if step % options.save_every == 0 or step == options.steps:
            save(options.save, step, {"model": model.state_dict(), "optimizer": optimizer.state_dict()})
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
