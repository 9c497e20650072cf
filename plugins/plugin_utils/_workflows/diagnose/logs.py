# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Diagnose the logs in a folder: read every file, judge each, write one JSON list."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import typing as t

from ....module_utils._model.errors import InputError
from ..._fabric.diagnosis.file import FileDiagnosis, diagnose_stream

MAX_FILES = 10_000


def diagnose_folder(path: str, dest: str | None = None, *, check: bool = False) -> dict[str, object]:
    """Diagnose the files of a folder (or one file) and write the list to ``dest`` unless it already holds the same.

    :param path: folder, read with its subfolders, or file; relative to the current directory.
    :param dest: JSON file to write, whose folder must exist.
    :param check: diagnose, but do not write.
    :returns: ``changed``, ``diagnoses`` (one mapping a file, by name) and ``summary`` (one line a file).
    :raises InputError: when ``path`` does not exist or holds too many files, or ``dest`` cannot be written.
    """
    root = pathlib.Path(path).expanduser()
    target = pathlib.Path(dest).expanduser() if dest else None
    diagnoses = [diagnose_file(file, name) for file, name in _find_files(root, target)]
    entries = [diagnosis.to_dict() for diagnosis in diagnoses]
    changed = target is not None and write_if_changed(target, entries, check=check)
    return {"changed": changed, "diagnoses": entries, "summary": [_summary_line(item) for item in diagnoses]}


def diagnose_file(path: pathlib.Path, name: str) -> FileDiagnosis:
    """Diagnose one file; a file that cannot be read is of kind ``unknown`` with the reason in ``problem``."""
    try:
        if not path.is_file():
            return FileDiagnosis(name, "unknown", problem="not a regular file")
        with path.open("rb") as stream:
            return diagnose_stream(stream, name)
    except OSError as exc:
        return FileDiagnosis(name, "unknown", problem=f"cannot be read: {exc.strerror or type(exc).__name__}")


def _find_files(root: pathlib.Path, target: pathlib.Path | None) -> list[tuple[pathlib.Path, str]]:
    if not os.path.lexists(root):
        raise InputError("path", f"{root} does not exist", "Name the folder that holds the logs")
    if not root.is_dir():
        return [(root, root.name)]
    result = target.resolve() if target else None
    files = []
    for folder, subfolders, names in os.walk(root, onerror=_raise_unreadable):
        subfolders.sort()
        # The result of an earlier task is not a log.
        paths = [pathlib.Path(folder, name) for name in names]
        files += [(path, path.relative_to(root).as_posix()) for path in paths if path.resolve() != result]
        if len(files) > MAX_FILES:
            raise InputError("path", f"{root} holds more than {MAX_FILES} files", "Name a smaller folder")
    return sorted(files, key=lambda item: item[1])


def _raise_unreadable(error: OSError) -> t.NoReturn:
    raise InputError("path", f"{error.filename} cannot be read: {error.strerror}")


def write_if_changed(target: pathlib.Path, document: object, *, check: bool) -> bool:
    """Replace the file by one rename, and only when its content differs; return whether it did."""
    content = (json.dumps(document, indent=2, ensure_ascii=False) + "\n").encode("utf-8", "replace")
    with contextlib.suppress(OSError):
        if target.read_bytes() == content:
            return False
    if check:
        return True
    draft = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        draft.write_bytes(content)
        draft.replace(target)
    except OSError as exc:
        draft.unlink(missing_ok=True)
        raise InputError(
            "dest", f"{target} cannot be written: {exc.strerror}", "Name a file in a folder that exists"
        ) from exc
    return True


def _summary_line(diagnosis: FileDiagnosis) -> str:
    """Return one line for people: the outcome, the kind of file, the proven transport, the causes."""
    causes = ", ".join(cause.code for cause in diagnosis.causes) or diagnosis.problem or "no cause found"
    network = (
        f"{diagnosis.transport} ({diagnosis.transport_verdict})" if diagnosis.transport else diagnosis.transport_verdict
    )
    first = "" if diagnosis.first_rank is None else f"; rank {diagnosis.first_rank} first"
    node = f" (on {diagnosis.first_node})" if diagnosis.first_node else ""
    return f"{diagnosis.file}: {diagnosis.outcome}; {diagnosis.kind}; transport {network}; {causes}{first}{node}"
