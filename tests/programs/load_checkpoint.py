# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Load a fetched checkpoint with the library that wrote it: ``load_checkpoint.py KIND PATH``; prints its tensors' number.

Run with the programs' interpreter.
"""

from __future__ import annotations

import pathlib
import sys


def archive(place: pathlib.Path) -> int:
    """Return the number of tensors of an archive of ``torch.save``."""
    import torch

    found = torch.load(place, map_location="cpu", weights_only=False)
    state = next(found[key] for key in ("state_dict", "model") if key in found)
    return len(state)


def unet(place: pathlib.Path) -> int:
    """Return the number of parameters of a UNet of diffusers in a checkpoint of Accelerate."""
    import diffusers

    return len(list(diffusers.UNet2DModel.from_pretrained(place / "unet").parameters()))


def causal_lm(place: pathlib.Path) -> int:
    """Return the number of parameters of a causal language model of transformers."""
    import transformers

    return len(list(transformers.AutoModelForCausalLM.from_pretrained(place).parameters()))


def classifier(place: pathlib.Path) -> int:
    """Return the number of parameters of a model of transformers that gives a score."""
    import transformers

    return len(list(transformers.AutoModelForSequenceClassification.from_pretrained(place).parameters()))


def conditional_unet(place: pathlib.Path) -> int:
    """Return the number of parameters of the UNet of Stable Diffusion in a checkpoint of Accelerate."""
    import diffusers

    return len(list(diffusers.UNet2DConditionModel.from_pretrained(place / "unet").parameters()))


def tensors(place: pathlib.Path) -> int:
    """Return the number of tensors of all files of safetensors."""
    import safetensors.torch

    return sum(len(safetensors.torch.load_file(path)) for path in place.rglob("*.safetensors"))


def orbax(place: pathlib.Path) -> int:
    """Return the number of arrays of a step of Orbax' checkpoint manager."""
    import jax
    import numpy as np
    import orbax.checkpoint as ocp

    # It was saved by two processes, and is loaded by one.
    here = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    told = {"weights": jax.ShapeDtypeStruct((16,), np.float32, sharding=here)}
    with ocp.CheckpointManager(place.parent.resolve()) as manager:
        return len(manager.restore(int(place.name), args=ocp.args.StandardRestore(told)))


def dcp(place: pathlib.Path) -> int:
    """Return the number of tensors of a checkpoint of torch.distributed.checkpoint."""
    import tempfile

    import torch
    from torch.distributed.checkpoint import FileSystemReader
    from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

    with tempfile.NamedTemporaryFile(suffix=".pt") as handle:
        dcp_to_torch_save(place, handle.name)
        assert torch.load(handle.name, weights_only=False)
    known = FileSystemReader(place).read_metadata().state_dict_metadata
    return sum(hasattr(item, "size") for item in known.values())


def main(argv: list[str]) -> None:
    """Load and print."""
    known = (archive, unet, conditional_unet, causal_lm, classifier, tensors, orbax, dcp)
    count = {kind.__name__: kind for kind in known}[argv[1]](pathlib.Path(argv[2]))
    if not count:
        sys.exit("the checkpoint has no tensor")
    print(count)


if __name__ == "__main__":
    main(sys.argv)
