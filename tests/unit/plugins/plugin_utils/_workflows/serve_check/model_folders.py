# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Folders with a small model, as save_pretrained writes them; no tensor is more than a few bytes."""

from __future__ import annotations

import json
import pathlib
import struct
import typing as t

CONFIG = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 4, "torch_dtype": "bfloat16"}
EMBEDDING = "model.embed_tokens.weight"


def write_tensors(path: pathlib.Path, dtype: str = "BF16", **tensors: list[int]) -> None:
    """Write a file of safetensors with zeros; shapes by name, with "__" for a dot."""
    width = {"BF16": 2, "F16": 2, "F32": 4, "F64": 8}[dtype]
    header: dict[str, t.Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, shape in tensors.items():
        size = width
        for side in shape:
            size *= side
        header[name.replace("__", ".")] = {"dtype": dtype, "shape": shape, "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(end))


def write_model(folder: pathlib.Path) -> pathlib.Path:
    """Write a model in two shards that any server takes."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CONFIG))
    write_tensors(folder / "model-00001-of-00002.safetensors", model__embed_tokens__weight=[4, 2])
    write_tensors(folder / "model-00002-of-00002.safetensors", lm_head__weight=[4, 2])
    shards = {EMBEDDING: "model-00001-of-00002.safetensors", "lm_head.weight": "model-00002-of-00002.safetensors"}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": shards}))
    (folder / "tokenizer.json").write_text("{}")
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": "{{ messages }}"}))
    return folder
