# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Python's own loader for what the plugins share, so that it is compiled once and not by every run.

Ansible's loader of collections compiles a module whenever a process imports it. Python's keeps the result beside the
source (``__pycache__``, where that may be written). Names and contents of the modules are the same; packages, plugins
and other collections stay with Ansible's loader, and so does everything that is imported later.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import contextlib
import importlib.machinery
import importlib.util
import os
import sys
import types
import typing as t

_PLUGINS: t.Final = __name__.rpartition(".plugin_utils.")[0]
_OURS: t.Final = (f"{_PLUGINS}.plugin_utils.", f"{_PLUGINS}.module_utils.")


class Finder:
    """Finds modules of the collection's utilities in the folders of their packages; packages are not its to find."""

    @staticmethod
    def find_spec(
        fullname: str, path: t.Sequence[str] | None = None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return how to load a module, None for what is Ansible's to find (see importlib.abc.MetaPathFinder)."""
        del target
        if not fullname.startswith(_OURS):
            return None
        name = fullname.rpartition(".")[2]
        for folder in path or ():
            file = os.path.join(folder, f"{name}.py")
            if os.path.isfile(file):
                return importlib.util.spec_from_file_location(fullname, file)
        return None


@contextlib.contextmanager
def kept() -> t.Iterator[None]:
    """Have Python's loader asked before Ansible's for the imports within; afterwards all is as it was."""
    finder: t.Any = Finder()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
