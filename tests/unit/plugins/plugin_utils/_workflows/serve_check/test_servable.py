# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which folders can be served: each flaw is named with the way on, and a good one passes."""

from __future__ import annotations

import json
import os
import pathlib
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError
from ansible_collections.muster.training.plugins.plugin_utils._workflows.serve_check.servable import (
    ServeRules,
    check_folder,
)

from .model_folders import CONFIG, write_model, write_tensors

FIRST, SECOND = (f"model-0000{number}-of-00002.safetensors" for number in (1, 2))
INDEX = "model.safetensors.index.json"
Change = t.Callable[[pathlib.Path], object]


def failed(place: pathlib.Path, **rules: bool) -> dict[str, str]:
    checks = check_folder(place, ServeRules(**rules))
    assert all(check.fix and "\n" not in check.problem + check.fix for check in checks if not check.ok)
    return {check.name: check.problem for check in checks if not check.ok}


def config(**changes: t.Any) -> Change:
    kept = {key: value for key, value in {**CONFIG, **changes}.items() if value is not None}
    return lambda place: (place / "config.json").write_text(json.dumps(kept))


def one_file(place: pathlib.Path, dtype: str = "BF16", rows: int = 4) -> None:
    for name in (FIRST, SECOND, INDEX):
        (place / name).unlink()
    write_tensors(place / "model.safetensors", dtype, model__embed_tokens__weight=[rows, 2])


def only_pickle(place: pathlib.Path) -> None:
    for name in (FIRST, SECOND, INDEX):
        (place / name).unlink()
    (place / "pytorch_model.bin").write_bytes(b"PK\x03\x04" + bytes(40) + b"PK\x05\x06" + bytes(18))


def adapter(place: pathlib.Path) -> None:
    one_file(place)
    (place / "model.safetensors").rename(place / "adapter_model.safetensors")
    (place / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": "meta/llama"}))


def add(name: str, content: bytes = b"x") -> Change:
    def change(place: pathlib.Path) -> None:
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_bytes(content)

    return change


def cut(place: pathlib.Path) -> None:
    data = (place / SECOND).read_bytes()
    (place / SECOND).write_bytes(data[:-4])


def other_save(place: pathlib.Path) -> None:
    write_tensors(place / SECOND, lm_head__bias=[4, 2])


def test_a_model_as_save_pretrained_writes_it(tmp_path: pathlib.Path) -> None:
    assert failed(write_model(tmp_path / "model")) == {}
    one_file(tmp_path / "model")
    assert failed(tmp_path / "model") == {}


def test_a_folder_of_links_as_a_hub_keeps_it(tmp_path: pathlib.Path) -> None:
    blobs = write_model(tmp_path / "blobs")
    (tmp_path / "snapshot").mkdir()
    for path in blobs.iterdir():
        os.symlink(path, tmp_path / "snapshot" / path.name)
    assert failed(tmp_path / "snapshot") == {}


FLAWS: dict[str, tuple[Change, str, str]] = {
    "being saved": (add("checkpoint-is-incomplete.txt"), "whole", "is being written (checkpoint-is-incomplete.txt)"),
    "cut": (cut, "whole", f"is half saved: {SECOND} lacks its end"),
    "shard missing": (lambda place: (place / SECOND).unlink(), "whole", f"is half saved: {SECOND}, which"),
    "DCP": (add(".metadata"), "form", "is torch's distributed checkpoint (DCP, FSDP), which no server reads"),
    "DeepSpeed": (add("zero_to_fp32.py"), "form", "is a DeepSpeed ZeRO checkpoint"),
    "Megatron": (add("iter_0000010/mp_rank_00/model_optim_rng.pt"), "form", "is a Megatron checkpoint"),
    "adapter": (adapter, "form", "is an adapter of meta/llama, without the base's weights"),
    "no config": (lambda place: (place / "config.json").unlink(), "config", "config.json is missing"),
    "torn config": (add("config.json", b"{"), "config", "config.json cannot be read"),
    "config is a list": (add("config.json", b"[]"), "config", "config.json cannot be read"),
    "no architectures": (config(architectures=None), "config", "names no architectures"),
    "odd architectures": (config(architectures=[1]), "config", "names no architectures"),
    "own code": (config(auto_map={"AutoModel": "m.M"}), "own_code", "serving it would run Python files of the folder"),
    "pickle": (only_pickle, "weights", "pytorch_model.bin is a pickle, which runs code when it is loaded"),
    "other save": (other_save, "index", "1 of 2 tensors are not in their file, first lm_head.weight"),
    "no map": (add(INDEX, b"{}"), "index", "has no weight_map"),
    "no index": (lambda place: (place / INDEX).unlink(), "index", "2 files of weights and no model.safetensors.index"),
    "double": (lambda place: one_file(place, "F64"), "dtype", "tensors are F64, which servers do not run"),
    "no tokenizer": (lambda place: (place / "tokenizer.json").unlink(), "tokenizer", "the tokenizer is missing"),
    "torn tokenizer": (add("tokenizer.json", b"[]"), "tokenizer", "tokenizer.json cannot be read"),
    "rows": (lambda place: one_file(place, rows=5), "vocabulary", "vocab_size 4, and the embedding has 5 rows"),
    "no template": (add("tokenizer_config.json", b"{}"), "chat_template", "there is no chat template"),
}


@pytest.mark.parametrize("name", FLAWS)
def test_a_flaw_is_named(tmp_path: pathlib.Path, name: str) -> None:
    change, check, words = FLAWS[name]
    change(write_model(tmp_path / "model"))
    assert words in failed(tmp_path / "model")[check]


def test_what_is_taken_on_request(tmp_path: pathlib.Path) -> None:
    place = write_model(tmp_path / "model")
    config(auto_map={"AutoModel": "m.M"})(place)
    add("tokenizer_config.json", b"{}")(place)
    only_pickle(place)
    assert failed(place, chat=False, allow_pickle=True, allow_remote_code=True) == {}
    add("chat_template.jinja")(place)
    assert set(failed(place)) == {"own_code", "weights"}


def test_a_folder_without_weights_and_an_empty_one(tmp_path: pathlib.Path) -> None:
    place = write_model(tmp_path / "model")
    for name in (FIRST, SECOND, INDEX):
        (place / name).unlink()
    assert failed(place)["weights"] == "there are no weights (*.safetensors)"
    (tmp_path / "empty").mkdir()
    assert {"whole", "config", "weights", "tokenizer"} <= set(failed(tmp_path / "empty"))


@pytest.mark.parametrize("content", [b"", b"\xff" * 8, b"\x02\0\0\0\0\0\0\0{}", b"\x02\0\0\0\0\0\0\0[]"])
def test_a_file_that_is_not_safetensors(tmp_path: pathlib.Path, content: bytes) -> None:
    place = write_model(tmp_path / "model")
    one_file(place)
    (place / "model.safetensors").write_bytes(content)
    assert "model.safetensors has no header that can be read" in failed(place)["weights"]


def test_a_path_that_is_not_a_folder(tmp_path: pathlib.Path) -> None:
    with pytest.raises(InputError, match="path: .* is not a folder. Name the folder that has config.json"):
        check_folder(tmp_path / "none", ServeRules())
