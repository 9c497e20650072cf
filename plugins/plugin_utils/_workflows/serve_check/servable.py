# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a folder with a model can be served, and why not: files and headers only, nothing is loaded.

What servers read: config.json, a tokenizer, weights as safetensors (huggingface.co/docs/safetensors: eight bytes with
the header's length, then JSON with dtype and shape of each tensor). Whether the folder was written to its end is the
question of every checkpoint (``checkpoint_layouts``).
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
import re
import struct
import typing as t
from collections.abc import Iterator, Mapping

from ....module_utils._model.checks import Check
from ....module_utils._model.errors import InputError
from ....module_utils._node import checkpoint_layouts

Json = Mapping[str, t.Any]

_MAX_JSON = 64 << 20
_MAX_HEADER = 100_000_000
# Transformers' mark of a checkpoint in the middle of being saved (trainer_jit_checkpoint.py).
_INCOMPLETE = "checkpoint-is-incomplete.txt"
_SERVED_TYPES = frozenset(("F32", "F16", "BF16", "F8_E4M3", "F8_E5M2"))
_FLOAT = re.compile(r"(?:F|BF)[0-9]")
_PICKLES = re.compile(r"\.(?:bin|pt|pth|ckpt)\Z")
_EMBEDDING = re.compile(r"(?:^|\.)(?:embed_tokens|wte|word_embeddings|embed_in)\.weight\Z")
_VOCABULARIES = (("tokenizer.json",), ("tokenizer.model",), ("vocab.json", "merges.txt"), ("vocab.txt",))
# Checkpoints of training that no server reads: by a pattern of a file's path, what it is and what converts it.
_DCP = (
    "load it into the model and call save_pretrained; python -m torch.distributed.checkpoint.format_utils dcp_to_torch "
    "makes one file of it"
)
_ZERO = "run its own zero_to_fp32.py --safe_serialization, and add config.json and the tokenizer"
_TRAINING = (
    (r"(?:^|/)\.metadata\Z|\.distcp\Z", "torch's distributed checkpoint (DCP, FSDP)", _DCP),
    (r"zero_pp_rank_\d+.*_optim_states\.pt\Z|(?:^|/)zero_to_fp32\.py\Z", "a DeepSpeed ZeRO checkpoint", _ZERO),
    (r"(?:^|/)mp_rank_\d+(?:_\d+)?/", "a Megatron checkpoint", "convert it with Megatron-Bridge's export_ckpt"),
)


@dataclasses.dataclass(frozen=True, slots=True)
class ServeRules:
    """What is asked of a folder: whether chat has to work, and what is taken although it runs code of the file."""

    chat: bool = True
    allow_pickle: bool = False
    allow_remote_code: bool = False


def check_folder(place: pathlib.Path, rules: ServeRules) -> list[Check]:
    """Return each thing that a server needs of a folder.

    :raises InputError: for a path that is not a folder.
    """
    if not place.is_dir():
        raise InputError("path", f"{place} is not a folder", "Name the folder that has config.json, or fetch the model")
    # Through links, too: a folder of a model hub's cache has nothing else.
    listed = {path.relative_to(place).as_posix(): path.stat().st_size for path in place.rglob("*") if path.is_file()}
    config = _read_json(place / "config.json")
    tensors = _read_tensors(place, listed)
    return [
        _check_whole(place, listed),
        _check_form(place, listed),
        _check_config(place, config),
        _check_code(config, rules),
        *_check_weights(listed, tensors, rules),
        *_check_index(place, listed, tensors),
        _check_types(tensors),
        _check_tokenizer(place, listed),
        _check_vocabulary(config, tensors),
        *([_check_template(place, listed)] if rules.chat else []),
    ]


def _check(name: str, problem: str, fix: str, value: object = None, expected: object = None) -> Check:
    return Check(name, not problem, None, value, expected, problem, fix if problem else "")


def _read_json(path: pathlib.Path) -> Json | None:
    """Return the object in a file, None where there is none that can be read."""
    try:
        if path.stat().st_size > _MAX_JSON:
            return None
        value = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _check_whole(place: pathlib.Path, listed: Mapping[str, int]) -> Check:
    mark = next((name for name in listed if pathlib.PurePosixPath(name).name == _INCOMPLETE), "")
    problem = f"is being written ({mark})" if mark else ""
    problem = problem or checkpoint_layouts.find_problem(place, listed, checkpoint_layouts.recognise(place))
    return _check("whole", f"{place.name} {problem}" if problem else "", "Take the newest whole checkpoint (fetch)")


def _check_form(place: pathlib.Path, listed: Mapping[str, int]) -> Check:
    for pattern, what, converter in _TRAINING:
        if any(re.search(pattern, name) for name in listed):
            return _check("form", f"{place.name} is {what}, which no server reads", f"Convert it: {converter}")
    adapter = _read_json(place / "adapter_config.json")
    if adapter is not None:
        base = str(adapter.get("base_model_name_or_path") or "a model that it does not name")[:200]
        fix = "Merge it (peft: merge_and_unload, then save_pretrained), or serve the base with LoRA switched on"
        return _check("form", f"{place.name} is an adapter of {base}, without the base's weights", fix, "adapter")
    return _check("form", "", "", "model")


def _check_config(place: pathlib.Path, config: Json | None) -> Check:
    if config is None:
        problem = "config.json cannot be read" if (place / "config.json").exists() else "config.json is missing"
        return _check("config", problem, "Save the model with save_pretrained, which writes it")
    named = config.get("architectures")
    if not isinstance(named, list) or not named or not all(isinstance(item, str) for item in named):
        fix = 'Add it, such as "architectures": ["LlamaForCausalLM"]; save_pretrained writes it'
        return _check("config", "config.json names no architectures, so that no server knows the model's class", fix)
    return _check("config", "", "", named[0])


def _check_code(config: Json | None, rules: ServeRules) -> Check:
    own = bool((config or {}).get("auto_map")) and not rules.allow_remote_code
    problem = "config.json has an auto_map: serving it would run Python files of the folder" if own else ""
    return _check("own_code", problem, "Read those files, then set allow_remote_code (trust_remote_code of the server)")


def _read_tensors(place: pathlib.Path, listed: Mapping[str, int]) -> dict[str, dict[str, Json]]:
    """Return by safetensors file its tensors; none of a file whose header cannot be read."""
    found = {}
    for name in sorted(listed):
        if name.endswith(".safetensors") and "/" not in name:
            found[name] = dict(_read_header(place / name))
    return found


def _read_header(path: pathlib.Path) -> Iterator[tuple[str, Json]]:
    try:
        with path.open("rb") as stream:
            (length,) = struct.unpack("<Q", stream.read(8))
            header = json.loads(stream.read(length)) if length <= _MAX_HEADER else None
    except (OSError, ValueError, struct.error, RecursionError):
        return
    for name, tensor in (header if isinstance(header, dict) else {}).items():
        if name != "__metadata__" and isinstance(tensor, dict):
            yield str(name), tensor


def _check_weights(
    listed: Mapping[str, int], tensors: Mapping[str, Mapping[str, Json]], rules: ServeRules
) -> Iterator[Check]:
    unread = [name for name, inside in tensors.items() if not inside]
    pickles = sorted(name for name in listed if _PICKLES.search(name) and "/" not in name)
    problem, fix = "", "Save the model with save_pretrained (safetensors)"
    if unread:
        problem, fix = f"{unread[0]} has no header that can be read", "Copy the file again, or take another checkpoint"
    elif not tensors and not pickles:
        problem = "there are no weights (*.safetensors)"
    elif not tensors and not rules.allow_pickle:
        problem = f"{pickles[0]} is a pickle, which runs code when it is loaded"
        fix += ", or set allow_pickle where you made the file yourself"
    yield _check("weights", problem, fix, len(tensors))


def _check_index(
    place: pathlib.Path, listed: Mapping[str, int], tensors: Mapping[str, Mapping[str, Json]]
) -> Iterator[Check]:
    name = "model.safetensors.index.json"
    if name not in listed:
        several = len([file for file in tensors if not file.startswith("adapter")]) > 1
        problem = f"{len(tensors)} files of weights and no {name}" if several else ""
        yield _check("index", problem, "Save the model with save_pretrained, which writes it")
        return
    mapping = (_read_json(place / name) or {}).get("weight_map")
    if not isinstance(mapping, dict) or not mapping:
        yield _check("index", f"{name} has no weight_map", "Save the model with save_pretrained, which writes it")
        return
    lost = [tensor for tensor, file in mapping.items() if tensor not in tensors.get(str(file), {})]
    problem = f"{len(lost)} of {len(mapping)} tensors are not in their file, first {lost[0]}" if lost else ""
    yield _check("index", problem, "The files are of different saves: take another checkpoint", len(mapping))


def _check_types(tensors: Mapping[str, Mapping[str, Json]]) -> Check:
    types = {str(tensor.get("dtype")) for inside in tensors.values() for tensor in inside.values()}
    strange = sorted(item for item in types if _FLOAT.match(item) and item not in _SERVED_TYPES)
    problem = f"tensors are {strange[0]}, which servers do not run" if strange else ""
    return _check("dtype", problem, "Save it in bfloat16: model.to(torch.bfloat16).save_pretrained(…)", sorted(types))


def _check_tokenizer(place: pathlib.Path, listed: Mapping[str, int]) -> Check:
    whole = any(all(name in listed for name in names) for names in _VOCABULARIES)
    torn = whole and "tokenizer.json" in listed and _read_json(place / "tokenizer.json") is None
    problem = "tokenizer.json cannot be read" if torn else "" if whole else "the tokenizer is missing (tokenizer.json)"
    return _check("tokenizer", problem, "Call tokenizer.save_pretrained(FOLDER) with the tokenizer of the training")


def _check_vocabulary(config: Json | None, tensors: Mapping[str, Mapping[str, Json]]) -> Check:
    wanted = (config or {}).get("vocab_size")
    rows = next(
        (
            tensor["shape"][0]
            for inside in tensors.values()
            for name, tensor in inside.items()
            if _EMBEDDING.search(name) and isinstance(tensor.get("shape"), list) and tensor["shape"]
        ),
        None,
    )
    differs = isinstance(wanted, int) and rows is not None and rows != wanted
    problem = f"config.json says vocab_size {wanted}, and the embedding has {rows} rows" if differs else ""
    return _check(
        "vocabulary", problem, "Save config and weights of one model together (save_pretrained)", rows, wanted
    )


def _check_template(place: pathlib.Path, listed: Mapping[str, int]) -> Check:
    own = (_read_json(place / "tokenizer_config.json") or {}).get("chat_template")
    problem = "" if own or "chat_template.jinja" in listed else "there is no chat template, so that chat is refused"
    fix = "Add chat_template.jinja of the training, or set chat: false where only completions are served"
    return _check("chat_template", problem, fix)
