# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Real programs, each with the job that a user would write for it: arguments and settings, never an edit."""

from __future__ import annotations

import dataclasses
import pathlib
import typing as t

from .sources import Source


@dataclasses.dataclass(frozen=True, slots=True)
class Program:
    """A program of another project.

    :ivar origin: where it is from: a folder of a repository, the package whose module it is, or a program of ours over
        the trainer of a library.
    :ivar job: keys of the job, beside those that all have. :ivar data: what is made for it: kind -> dataset.
    :ivar first: pattern of its first checkpoint, whole, below the run's folder for checkpoints.
    :ivar checkpoints: pattern of all of them. :ivar layout: as which they are known. :ivar last: the last step that is
        read of it, None where its lines have none. :ivar saved: the step of its last checkpoint, where it is another.
    :ivar every: of so many steps it prints one. :ivar load: how a fetched checkpoint is loaded (``load_checkpoint.py``).
    :ivar ranks: of how many nodes with a rank each; one, where it is made for one device or has DDP on GPUs alone.
    :ivar after_s: how long after the first checkpoint the last rank is killed. :ivar losses: where its library writes its
        losses down itself (``read_losses.py``), ``unknown`` where its lines have none, empty where it does not.
    """

    name: str
    origin: Source | str | pathlib.Path
    job: t.Mapping[str, t.Any]
    first: str
    checkpoints: str
    layout: str
    last: int | None
    load: str
    data: tuple[str, ...] = ()
    saved: int | None = None
    every: int = 1
    ranks: int = 2
    after_s: float = 0.5
    keep: int = 2
    losses: str = ""


OWN = pathlib.Path(__file__).with_name("own")
_LIGHTNING = Source(
    "Lightning-AI/pytorch-lightning", "7f0c3436cd3f6ad3753125672024fc415cbcb414", "examples/pytorch/domain_templates"
)
_DIFFUSERS = "58eb52c0803ea9af3abec60841c2a093bdf1f951"
_NANOGPT = Source("karpathy/nanoGPT", "3adf61e154c3fe3fca428ad6bc3818b27a3b8291", "")
_TORCHTUNE = Source("pytorch/torchtune", "bd2a0fc7c31430972728494fa01aaeeb0ebf1ba1", "")
_RESUME = {"resume_args": ["--resume_from_checkpoint", "{checkpoint}"]}


def _trl(script: str, data: str, *more: str) -> dict[str, t.Any]:
    """Return the job of a script of trl, a program of transformers' Trainer."""
    return {
        "module": f"trl.scripts.{script}",
        "args": [
            *(
                "--model_name_or_path",
                "{run_dir}/data/language-model",
                "--dataset_name",
                f"{{run_dir}}/data/texts/{data}",
            ),
            *("--output_dir", "{checkpoint_dir}", "--max_steps", "240", "--save_steps", "40", "--logging_steps", "4"),
            *("--per_device_train_batch_size", "2", "--use_cpu", "--bf16", "false", "--dtype", "float32"),
            *("--report_to", "none", *more),
        ],
        "checkpoints": _RESUME,
    }


def _diffusers(script: str, *more: str) -> dict[str, t.Any]:
    """Return the job of an example of diffusers that adapts Stable Diffusion, a program of Accelerate."""
    return {
        "template": "accelerate",
        "script": script,
        "args": [
            *("--pretrained_model_name_or_path", "{run_dir}/data/stable-diffusion", "--resolution", "16"),
            *("--train_batch_size", "2", "--max_train_steps", "60", "--checkpointing_steps", "10"),
            *("--resume_from_checkpoint", "latest", "--output_dir", "{checkpoint_dir}", *more),
        ],
    }


PROGRAMS = (
    Program(
        name="diffusers_unconditional",
        origin=Source("huggingface/diffusers", _DIFFUSERS, "examples/unconditional_image_generation"),
        job={
            "template": "accelerate",
            "script": "train_unconditional.py",
            "args": [
                *("--train_data_dir", "{run_dir}/data/images/train", "--resolution", "16"),
                *("--model_config_name_or_path", "{run_dir}/data/diffusion-model", "--train_batch_size", "2"),
                *("--num_epochs", "5", "--checkpointing_steps", "10", "--resume_from_checkpoint", "latest"),
                *("--output_dir", "{checkpoint_dir}", "--ddpm_num_inference_steps", "2", "--eval_batch_size", "1"),
                *("--logger", "tensorboard", "--save_images_epochs", "100", "--save_model_epochs", "100"),
            ],
        },
        data=("images", "diffusion-model"),
        first="checkpoint-10/random_states_0.pkl",
        checkpoints="checkpoint-*",
        layout="accelerate",
        last=80,
        load="unet",
        losses="tensorboard",
    ),
    Program(
        name="lightning_imagenet",
        origin=_LIGHTNING,
        job={
            "script": "imagenet.py",
            "args": [
                *("fit", "--model.data_path", "{run_dir}/data/images", "--model.arch", "squeezenet1_1"),
                *("--model.batch_size", "4", "--model.workers", "0", "--trainer.accelerator", "cpu"),
                *("--trainer.devices", "1", "--trainer.num_nodes", "2", "--trainer.strategy", "ddp"),
                *("--trainer.max_epochs", "6", "--trainer.default_root_dir", "{checkpoint_dir}"),
                *("--trainer.callbacks", "ModelCheckpoint", "--trainer.callbacks.every_n_epochs", "1"),
                *(
                    "--trainer.callbacks.save_top_k",
                    "-1",
                ),
            ],
            "checkpoints": {"resume_args": ["--ckpt_path", "{checkpoint}"]},
        },
        data=("images",),
        first="checkpoints/*.ckpt",
        checkpoints="checkpoints/*.ckpt",
        layout="lightning",
        last=48,
        every=8,
        load="archive",
        losses="unknown",
    ),
    Program(
        name="trl_sft",
        origin="trl",
        job=_trl("sft", "text"),
        data=("language-model", "texts"),
        first="checkpoint-40/trainer_state.json",
        checkpoints="checkpoint-*",
        layout="transformers",
        last=240,
        load="causal_lm",
        losses="trainer_state",
    ),
    Program(
        name="trl_sft_deepspeed",
        origin="trl",
        job={
            **_trl("sft", "text", "--deepspeed", "{deepspeed_config}"),
            "launcher": "deepspeed",
            "deepspeed_config": {
                "train_micro_batch_size_per_gpu": "auto",
                "gradient_accumulation_steps": "auto",
                "zero_optimization": {"stage": 2},
            },
        },
        data=("language-model", "texts"),
        first="checkpoint-40/trainer_state.json",
        checkpoints="checkpoint-*",
        layout="transformers",
        last=240,
        load="causal_lm",
        losses="trainer_state",
    ),
    Program(
        name="trl_dpo",
        origin="trl",
        job=_trl("dpo", "preference"),
        data=("language-model", "texts"),
        first="checkpoint-40/trainer_state.json",
        checkpoints="checkpoint-*",
        layout="transformers",
        last=240,
        load="causal_lm",
        losses="trainer_state",
    ),
    Program(
        name="trl_reward",
        origin="trl",
        job=_trl("reward", "preference"),
        data=("language-model", "texts"),
        first="checkpoint-40/trainer_state.json",
        checkpoints="checkpoint-*",
        layout="transformers",
        last=240,
        load="classifier",
        losses="trainer_state",
    ),
    Program(
        name="trl_kto",
        origin="trl",
        job=_trl("kto", "opinion"),
        data=("language-model", "texts"),
        first="checkpoint-40/trainer_state.json",
        checkpoints="checkpoint-*",
        layout="transformers",
        last=240,
        load="causal_lm",
        losses="trainer_state",
    ),
    Program(
        name="diffusers_text_to_image",
        origin=Source("huggingface/diffusers", _DIFFUSERS, "examples/text_to_image"),
        job=_diffusers("train_text_to_image.py", "--train_data_dir", "{run_dir}/data/captions/train"),
        data=("captions", "stable-diffusion"),
        first="checkpoint-10/random_states_0.pkl",
        checkpoints="checkpoint-*",
        layout="accelerate",
        last=60,
        load="conditional_unet",
        losses="tensorboard",
    ),
    Program(
        name="diffusers_text_to_image_lora",
        origin=Source("huggingface/diffusers", _DIFFUSERS, "examples/text_to_image"),
        job=_diffusers("train_text_to_image_lora.py", "--train_data_dir", "{run_dir}/data/captions/train"),
        data=("captions", "stable-diffusion"),
        first="checkpoint-10/random_states_0.pkl",
        checkpoints="checkpoint-*",
        layout="accelerate",
        last=60,
        load="tensors",
        losses="tensorboard",
    ),
    Program(
        name="diffusers_textual_inversion",
        origin=Source("huggingface/diffusers", _DIFFUSERS, "examples/textual_inversion"),
        job=_diffusers(
            "textual_inversion.py",
            *("--train_data_dir", "{run_dir}/data/images/train/class0", "--learnable_property", "object"),
            *("--placeholder_token", "qq", "--initializer_token", "a"),
        ),
        data=("images", "stable-diffusion"),
        first="checkpoint-10/random_states_0.pkl",
        checkpoints="checkpoint-*",
        layout="accelerate",
        last=60,
        load="tensors",
        losses="tensorboard",
    ),
    Program(
        name="diffusers_dreambooth",
        origin=Source("huggingface/diffusers", _DIFFUSERS, "examples/dreambooth"),
        job=_diffusers(
            "train_dreambooth.py",
            *("--instance_data_dir", "{run_dir}/data/images/train/class0", "--instance_prompt", "a class"),
        ),
        data=("images", "stable-diffusion"),
        first="checkpoint-10/random_states_0.pkl",
        checkpoints="checkpoint-*",
        layout="accelerate",
        last=60,
        load="conditional_unet",
        losses="tensorboard",
    ),
    Program(
        name="orbax_jax",
        origin=OWN,
        job={
            "launcher": "command",
            "command": ["PYTHON", "-u", "orbax_train.py", "{checkpoint_dir}", "100"],
            "metrics": {"step_pattern": r"step (?P<step>\d+) loss (?P<loss>\S+)"},
        },
        first="10/_CHECKPOINT_METADATA",
        checkpoints="[0-9]*",
        layout="orbax",
        last=100,
        load="orbax",
    ),
    Program(
        name="fsdp_dcp",
        origin=OWN,
        job={
            "script": "fsdp_train.py",
            "args": ["{checkpoint_dir}", "100"],
            "metrics": {"step_pattern": r"step (?P<step>\d+) loss (?P<loss>\S+)"},
        },
        first="step-10/.metadata",
        checkpoints="step-*",
        layout="dcp",
        last=100,
        load="dcp",
    ),
    Program(
        name="nanogpt",
        origin=_NANOGPT,
        job={
            "launcher": "command",
            "command": [
                # It takes RANK for DDP, which it has on GPUs alone.
                *("env", "-u", "RANK", "PYTHON", "-u", "train.py", "--device=cpu", "--compile=False"),
                *("--dtype=float32", "--dataset={run_dir}/data/tokens", "--out_dir={checkpoint_dir}"),
                *("--max_iters=300", "--eval_interval=20", "--eval_iters=2", "--always_save_checkpoint=True"),
                *("--batch_size=4", "--block_size=64", "--n_layer=2", "--n_head=2", "--n_embd=64"),
                *("--gradient_accumulation_steps=2", "--warmup_iters=5"),
            ],
            "checkpoints": {"resume_args": ["--init_from=resume"]},
            "metrics": {"preset": "nanogpt"},
        },
        data=("tokens",),
        first="ckpt.pt",
        checkpoints="ckpt.pt",
        layout="files",
        last=300,
        ranks=1,
        keep=1,
        load="archive",
    ),
    Program(
        name="torchtune",
        origin=_TORCHTUNE,
        job={
            "module": "torchtune._cli.tune",
            "args": [
                *("run", "full_finetune_single_device", "--config", "llama3_2/1B_full_single_device"),
                *("device=cpu", "dtype=fp32", "epochs=3", "save_every_n_steps=20", "output_dir={checkpoint_dir}"),
                *("checkpointer.checkpoint_dir={run_dir}/data/language-model", "checkpointer.model_type=LLAMA3"),
                *("checkpointer.keep_last_n_checkpoints=null", "model._component_=torchtune.models.llama3.llama3"),
                *("model.vocab_size=256", "model.num_layers=2", "model.num_heads=4", "model.num_kv_heads=4"),
                *("model.embed_dim=32", "model.intermediate_dim=64", "model.max_seq_len=256"),
                "tokenizer._component_=torchtune.models.llama2.llama2_tokenizer",
                "tokenizer.path={run_dir}/data/sentence-pieces/tokenizer.model",
                "dataset._component_=torchtune.datasets.text_completion_dataset",
                *("dataset.source=json", "dataset.data_files={run_dir}/data/texts/text/train.jsonl"),
                *("optimizer._component_=torch.optim.AdamW", "optimizer_in_bwd=False"),
            ],
            # The later of two values of a key counts.
            "checkpoints": {"resume_args": ["resume_from_checkpoint=True", "checkpointer.checkpoint_dir={checkpoint}"]},
        },
        data=("language-model", "sentence-pieces", "texts"),
        first="step_20/recipe_state.pt",
        checkpoints="step_*",
        layout="torchtune",
        last=300,
        ranks=1,
        load="causal_lm",
        losses="torchtune",
    ),
)
