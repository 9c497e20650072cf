# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Keeps the compiled code of the collection's private parts between runs.

Ansible's loader of collections compiles every file in every run: 65 of the 110 ms that importing kube_apply takes. A
``__pycache__`` beside the sources would make ``ansible-galaxy collection verify`` fail, so the code is kept in the
user's cache folder. An entry holds the digest of the source it was made from and is used for that source only.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.abc
import importlib.machinery
import importlib.util
import marshal
import os
import sys
import tempfile
import types
import typing as t
from collections.abc import Mapping, MutableSequence, Sequence

_PARTS = ("plugin_utils", "module_utils")
_DIGEST = hashlib.sha256().digest_size


def folder(environ: Mapping[str, str]) -> str:
    """Return where compiled code is kept (XDG base directories), empty when there is no home."""
    home = environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(home):
        home = os.path.join(environ["HOME"], ".cache") if environ.get("HOME") else ""
    return os.path.join(home, "muster.training", "code", str(sys.implementation.cache_tag)) if home else ""


class Kept:
    """Compiled code by module name in one folder, which nobody else may write: it is run as it is."""

    def __init__(self, place: str) -> None:
        self._place = place

    def load(self, name: str, digest: bytes) -> types.CodeType | None:
        """Return the code kept for the source with this digest, None when there is none that can be trusted."""
        try:
            with open(os.path.join(self._place, name), "rb") as stream:
                info = os.fstat(stream.fileno())
                if info.st_uid != os.geteuid() or info.st_mode & 0o022 or stream.read(_DIGEST) != digest:
                    return None
                code = marshal.loads(stream.read())
        except (OSError, ValueError, EOFError, TypeError):
            return None
        return code if isinstance(code, types.CodeType) else None

    def store(self, name: str, digest: bytes, code: types.CodeType) -> None:
        """Keep code, unless the folder cannot be written or Python was told to write none."""
        if sys.dont_write_bytecode:
            return
        temporary = ""
        try:
            os.makedirs(self._place, mode=0o700, exist_ok=True)
            handle, temporary = tempfile.mkstemp(dir=self._place, prefix=".new-")
            with os.fdopen(handle, "wb") as stream:
                stream.write(digest + marshal.dumps(code))
            os.replace(temporary, os.path.join(self._place, name))
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(temporary)


class Loader(importlib.machinery.SourceFileLoader):
    """Loads a source file, compiled anew only when it changed."""

    def __init__(self, name: str, path: str, kept: Kept) -> None:
        super().__init__(name, path)
        self._kept = kept

    def get_code(self, fullname: str) -> types.CodeType:
        """Return the module's code."""
        path = self.get_filename(fullname)
        source = self.get_data(path)
        # The path is part of the code, and code of one build of Python is not that of another.
        what = (importlib.util.MAGIC_NUMBER, os.fsencode(path), source)
        digest = hashlib.sha256(b"\0".join(what)).digest()
        code = self._kept.load(fullname, digest)
        if code is None:
            code = compile(source, path, "exec", dont_inherit=True)
            self._kept.store(fullname, digest, code)
        return code


class Finder(importlib.abc.MetaPathFinder):
    """Finds the files below some packages; the packages themselves are left to whoever comes next."""

    def __init__(self, packages: Sequence[str], kept: Kept) -> None:
        self._prefixes = tuple(f"{package}." for package in packages)
        self._kept = kept

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return where a module comes from, None for what is no file of these packages."""
        if not fullname.startswith(self._prefixes) or not path:
            return None
        file = os.path.join(path[0], f"{fullname.rpartition('.')[2]}.py")
        if not os.path.isfile(file):
            return None
        return importlib.util.spec_from_file_location(fullname, file, loader=Loader(fullname, file, self._kept))


def install(package: str, spec: importlib.machinery.ModuleSpec | None, finders: MutableSequence[t.Any]) -> None:
    """Have the private parts found by :class:`Finder`, where Ansible's loader would find them.

    ``package`` is one of them, and ``spec`` tells how it was loaded: Python's own loader keeps its code already.
    """
    place = folder(os.environ)
    own = spec is not None and isinstance(spec.loader, importlib.machinery.SourceFileLoader)
    if own or not place or any(type(finder).__name__ == Finder.__name__ for finder in finders):
        return
    above = package.rpartition(".")[0]
    finders.insert(0, Finder([f"{above}.{part}" for part in _PARTS], Kept(place)))
