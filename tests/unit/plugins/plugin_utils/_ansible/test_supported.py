# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import ast
import importlib
import pathlib

import ansible.release
import pytest
from ansible.errors import AnsibleError

from ansible_collections.muster.training.plugins.plugin_utils._ansible import supported

FOLDER = pathlib.Path(supported.__file__).parent


@pytest.mark.parametrize(
    ("core", "python", "this"),
    [
        ("2.19.14", (3, 11), "ansible-core 2.19.14 with Python 3.11."),
        ("2.19.0", (3, 13), "ansible-core 2.19.0 with Python 3.13."),
        ("2.20.0b1", (3, 11), "ansible-core 2.20.0b1 with Python 3.11."),
    ],
)
def test_what_is_too_old_is_named_with_the_way_out(core: str, python: tuple[int, int], this: str) -> None:
    said = supported.find_problem(core, python)
    assert this in said and "pip install 'ansible-core>=2.20'" in said


@pytest.mark.parametrize("core", ["2.20.0", "2.20.0rc1", "2.21.3", "3.0.0"])
def test_newer_ones_are_taken(core: str) -> None:
    assert supported.find_problem(core, (3, 12)) == "" == supported.find_problem(core, (3, 14))


def test_an_import_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as changed:
        changed.setattr(ansible.release, "__version__", "2.18.1")
        with pytest.raises(AnsibleError, match=r"this is ansible-core 2\.18\.1"):
            importlib.reload(supported)
    importlib.reload(supported)


def test_it_is_read_by_an_old_python_and_before_all_else_of_the_collection() -> None:
    ast.parse(pathlib.Path(supported.__file__).read_text(), feature_version=(3, 10))
    for place in (FOLDER / "base.py", FOLDER / "connections.py"):
        imports = [
            item for item in ast.parse(place.read_text()).body if isinstance(item, ast.ImportFrom) and item.level
        ]
        # Nodes read module_utils, too: an old Python can.
        first = next(item for item in imports if not str(item.module).startswith("module_utils"))
        assert ast.unparse(first) == "from .._ansible import supported as _supported", place.name
