# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bindings in the state home."""

from __future__ import annotations

import pathlib

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.binding import Binding
from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError, RefusedError
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared import bindings
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared.state_dir import StateHome


def make(name: str) -> Binding:
    return Binding.from_dict({"name": name, "component": "object_store", "mode": "bind", "endpoint": "http://x"})


@pytest.fixture
def home(tmp_path: pathlib.Path) -> StateHome:
    return StateHome({"path": str(tmp_path)}, "lab")


def test_a_binding_is_written_read_and_removed(home: StateHome) -> None:
    bindings.write_binding(home, make("store"))
    place = bindings.binding_file(home, "store")
    assert place.stat().st_mode & 0o777 == 0o600 and place.parent.stat().st_mode & 0o777 == 0o700
    assert bindings.load_binding(home, "store", "job.x") == make("store") == bindings.list_bindings(home)[0]
    assert bindings.remove_binding(home, "store") and not bindings.remove_binding(home, "store")
    assert bindings.find_binding(home, "store") is None


def test_a_misspelt_name_gets_the_nearest_and_the_cluster(home: StateHome) -> None:
    with pytest.raises(InputError, match=r"'stor' is not a binding of cluster lab \(there are: none\)"):
        bindings.load_binding(home, "stor", "job.x")
    bindings.write_binding(home, make("store"))
    with pytest.raises(InputError, match="did you mean 'store'"):
        bindings.load_binding(home, "stor", "job.x")
    with pytest.raises(InputError, match="binding: must be lower-case"):
        bindings.find_binding(home, "../x")


@pytest.mark.parametrize("text", ["", "{", "[]", '{"name": "store"}'])
def test_a_damaged_file_is_refused_and_named(home: StateHome, text: str) -> None:
    bindings.write_binding(home, make("store"))
    bindings.binding_file(home, "store").write_text(text)
    with pytest.raises(RefusedError, match=r"store\.json is damaged"):
        bindings.find_binding(home, "store")
