# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The step that a file of torch.save holds is read without PyTorch, and nothing in it is executed."""

from __future__ import annotations

import argparse
import collections
import os
import pathlib
import pickle
import typing as t
import zipfile

import hypothesis as h
import hypothesis.strategies as st
import pytest

from ansible_collections.muster.training.plugins.module_utils._node import checkpoint_steps
from ansible_collections.muster.training.plugins.module_utils._node.checkpoint_table import HELD, LAYOUTS

# What PyTorch's states have: the optimizer's steps, modules whose class is not to be imported, texts that are repeated.
STATE: t.Final = collections.OrderedDict({"w": [1, 2], "step": 7})
OPTIMIZER: t.Final = {"state": {number: {"step": 900 + number, "exp": (1, 2)} for number in range(3000)}}


def write(place: pathlib.Path, state: object, protocol: int = 2, name: str = "archive/data.pkl") -> pathlib.Path:
    with zipfile.ZipFile(place, "w") as archive:
        archive.writestr(f"{name.partition('/')[0]}/version", "3")
        archive.writestr(name, state if isinstance(state, bytes) else pickle.dumps(state, protocol=protocol))
    return place


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("step", [0, 17, 300, 70_000, 2**40])
def test_the_step_of_the_state_is_read_and_none_within_it(tmp_path: pathlib.Path, step: int, protocol: int) -> None:
    args = argparse.Namespace(step=5, global_step=6)
    state = {"model": STATE, "optimizer": OPTIMIZER, "args": args, "none": None, "rate": 0.1, "step": step, "on": True}
    assert checkpoint_steps.read_step(write(tmp_path / "a.pt", state, protocol), "files") == step
    inner = {key: value for key, value in state.items() if key != "step"}
    assert checkpoint_steps.read_step(write(tmp_path / "b.pt", inner, protocol), "files") is None


@pytest.mark.parametrize(
    ("layout", "state", "step"),
    [
        ("lightning", {"epoch": 2, "global_step": 48, "state_dict": STATE}, 48),
        ("files", {"model": STATE, "iter_num": 30}, 30),
        ("files", {"step": 3, "global_step": 12}, 12),
        ("mmengine", {"meta": {"epoch": 1, "iter": 77, "seed": 3}, "iter": 5}, 77),
        ("fairseq", {"optimizer_history": [{"num_updates": 10}, {"num_updates": 20}], "extra_state": {}}, 20),
        ("files", {"step": STATE}, None),
        ("files", {"step": (5, 6)}, None),
        ("files", {"step": True}, None),
        ("files", {"step": -1}, None),
        ("files", {"step": 2**80}, None),
        ("files", {"step": "5"}, None),
        ("files", [("step", 5)], None),
        ("safetensors", {"step": 5}, None),
    ],
)
def test_each_layout_has_its_key(tmp_path: pathlib.Path, layout: str, state: object, step: int | None) -> None:
    assert checkpoint_steps.read_step(write(tmp_path / "a.pt", state), layout) == step


@pytest.mark.parametrize(("layout", "key"), [("deepspeed", "global_steps"), ("torchtune", "steps_run")])
def test_of_a_folder_one_file_has_it(tmp_path: pathlib.Path, layout: str, key: str) -> None:
    assert checkpoint_steps.read_step(tmp_path, layout) is None
    write(tmp_path / LAYOUTS[layout].state, {"module": STATE, key: 9})
    assert checkpoint_steps.read_step(tmp_path, layout) == 9


def test_a_file_that_was_written_over_is_read_again(tmp_path: pathlib.Path) -> None:
    place = write(tmp_path / "a.pt", {"step": 5})
    assert checkpoint_steps.read_step(place, "files") == 5
    write(place, {"step": 6})
    os.utime(place, (1.0, 1.0))
    assert checkpoint_steps.read_step(place, "files") == 6


def test_nothing_is_executed_and_what_is_damaged_is_unknown(tmp_path: pathlib.Path) -> None:
    class Bad:
        def __reduce__(self) -> tuple[t.Any, ...]:
            return os.mkdir, (str(tmp_path / "made"),)

    assert checkpoint_steps.read_step(write(tmp_path / "a.pt", {"x": Bad(), "step": 4}), "files") == 4
    assert checkpoint_steps.read_step(write(tmp_path / "b.pt", {"step": Bad()}), "files") is None
    assert not (tmp_path / "made").exists()
    (tmp_path / "c.pt").write_bytes((tmp_path / "a.pt").read_bytes()[:-30])
    (tmp_path / "d.pt").write_bytes(pickle.dumps({"step": 4}))
    write(tmp_path / "e.pt", {"step": 4}, name="archive/constants.pkl")
    names = ("c.pt", "d.pt", "e.pt", "none.pt", ".")
    assert [checkpoint_steps.read_step(tmp_path / name, "files") for name in names] == [None] * len(names)


def test_what_is_too_large_is_not_read(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = {"x": list(range(1000)), "step": 4}
    monkeypatch.setattr(checkpoint_steps, "_MOST_OPCODES", 900)
    assert checkpoint_steps.read_step(write(tmp_path / "a.pt", state), "files") is None
    monkeypatch.setattr(checkpoint_steps, "_MOST_OPCODES", 9000)
    assert checkpoint_steps.read_step(write(tmp_path / "b.pt", state), "files") == 4
    monkeypatch.setattr(checkpoint_steps, "_MOST_BYTES", 900)
    assert checkpoint_steps.read_step(write(tmp_path / "c.pt", state), "files") is None


@h.given(st.binary(max_size=200), st.integers(0, 400), st.integers(0, 5))
@h.settings(deadline=None, suppress_health_check=[h.HealthCheck.function_scoped_fixture])
def test_any_bytes_are_taken(tmp_path: pathlib.Path, noise: bytes, at: int, protocol: int) -> None:
    whole = pickle.dumps({"model": STATE, "n": {1: [2]}, "step": 5}, protocol=protocol)
    place = write(tmp_path / f"{len(list(tmp_path.iterdir()))}.pt", whole[:at] + noise + whole[at + len(noise) :])
    found = checkpoint_steps.read_step(place, "files")
    assert found is None or found >= 0


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(0, 2**40) | st.text(max_size=4) | st.floats(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from([*(key for (key,) in HELD), "a", "b"]), inner, max_size=4)
        | st.tuples(inner, inner)
    ),
    max_leaves=12,
)


@h.given(st.dictionaries(st.sampled_from([*(key for (key,) in HELD), "a"]), PLAIN), st.integers(0, 5))
@h.settings(deadline=None, suppress_health_check=[h.HealthCheck.function_scoped_fixture])
def test_it_is_what_the_state_has(tmp_path: pathlib.Path, state: dict[str, t.Any], protocol: int) -> None:
    place = write(tmp_path / f"{len(list(tmp_path.iterdir()))}.pt", state, protocol)
    wanted = next((state[key] for (key,) in HELD if type(state.get(key)) is int), None)
    assert checkpoint_steps.read_step(place, "files") == wanted
