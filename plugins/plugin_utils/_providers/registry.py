# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find the providers of machines: each folder here whose module ``provision`` declares ``PROVIDER`` is one.

To add a provider, add a folder; nothing in this file changes.
"""

from __future__ import annotations

import functools
import importlib
import pathlib
import zipfile

from .base import ProviderDeclaration

_MODULE = "provision"


def find_folders() -> list[str]:
    """Return the names of the folders here that have a module ``provision``, also inside a zip file (the reaper's)."""
    here = pathlib.Path(__file__).parent
    root: pathlib.Path | zipfile.Path = here
    if not here.is_dir():
        archive = next(folder for folder in here.parents if folder.is_file())
        root = zipfile.Path(str(archive), f"{here.relative_to(archive).as_posix()}/")
    return sorted(folder.name for folder in root.iterdir() if (folder / f"{_MODULE}.py").is_file())


@functools.cache
def find_providers() -> dict[str, ProviderDeclaration]:
    """Return the declaration of each provider of machines, by the name that users give."""
    modules = [importlib.import_module(f"{__package__}.{folder}.{_MODULE}") for folder in find_folders()]
    declarations = [getattr(module, "PROVIDER", None) for module in modules]
    return {item.name: item for item in declarations if isinstance(item, ProviderDeclaration)}
