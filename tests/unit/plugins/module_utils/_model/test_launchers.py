# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which words are launchers, and what is said to those that are not."""

from __future__ import annotations

import pathlib

import pytest
import yaml

from ansible_collections.muster.training.plugins.module_utils._model import launchers
from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError
from ansible_collections.muster.training.plugins.module_utils._model.job import parse_job
from ansible_collections.muster.training.plugins.modules import training_job


@pytest.mark.parametrize("name", launchers.LAUNCHERS)
def test_a_launcher_is_taken(name: str) -> None:
    assert launchers.parse(name, "job.launcher") == name


def test_the_documented_launchers_are_those() -> None:
    documented = yaml.safe_load(training_job.DOCUMENTATION)["options"]["job"]["suboptions"]["launcher"]["choices"]
    assert sorted(documented) == sorted(launchers.LAUNCHERS)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("horovod", "does not build with current PyTorch.*Use torchrun, or mpi"),
        ("torchrum", "must be one of .*Did you mean 'torchrun'"),
        (7, "must be one of"),
    ],
)
def test_another_word_is_refused_with_what_to_use(name: object, said: str) -> None:
    with pytest.raises(InputError, match=said) as caught:
        parse_job({"name": "x", "script": "/t.py", "launcher": name})
    assert caught.value.option == "job.launcher" and "\n" not in str(caught.value)


def test_no_module_stands_for_a_launcher_that_there_is_not() -> None:
    """A module that hands torchrun's functions on would be an alias."""
    folder = pathlib.Path(training_job.__file__).parents[1] / "plugin_utils" / "_launch"
    shared = {"__init__", "base", "environment", "pod_spec", "registry"}
    assert {place.stem for place in folder.glob("*.py")} - shared <= set(launchers.LAUNCHERS)
