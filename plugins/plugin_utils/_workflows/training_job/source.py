# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The source of a run: its code and datasets on the controller, and the run id derived from them.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import pathlib
import typing as t

from ....module_utils._model import job_checkpoints, job_datasets
from ....module_utils._model.errors import InputError, RefusedError
from ....module_utils._model.job import Job, to_yaml_names
from ..._hosts import file_sync, gang
from ..._launch import environment
from ..._launch.base import RunContext

_SHOWN = 5
_PORT_FIRST, _PORT_PAIRS = 20_000, 5_000
# A script is compiled on the nodes before the start; a larger one is sent unread.
_SCRIPT_LIMIT = 1 << 20


@dataclasses.dataclass(frozen=True, slots=True)
class CodeSource:
    """The trees of a job on the controller: its code (with the git commit, if any) and its datasets."""

    placed: tuple[gang.PlacedTree, ...]
    code_sha256: str | None
    commit: str | None

    def blobs(self) -> list[str]:
        """Return the checksums of all files."""
        return sorted({file.sha256 for item in self.placed for file in item.tree.files})


def read_source(
    job: Job, base: pathlib.Path, cache: pathlib.Path, say: t.Callable[[str], None] = lambda _line: None
) -> CodeSource:
    """Return the job's trees, read from the controller (relative paths are relative to ``base``)."""
    placed: list[gang.PlacedTree] = []
    code_sha = commit = None
    if job.code is not None and job.code.source != "image":
        folder = pathlib.Path(base, job.code.ref).expanduser()
        if job.code.source == "git":
            folder, commit = file_sync.checkout_git(job.code.ref, cache, "job.code.ref")
        tree = file_sync.read_tree(folder, "job.code.ref", is_code=job.code.source == "path")
        code_sha = tree.sha256
        if job.code.sha256 and job.code.sha256 != code_sha:
            raise RefusedError(
                f"job.code.sha256: the code has checksum {code_sha}", "Check the code, or update job.code.sha256"
            )
        _require_script(job, tree)
        placed.append(gang.PlacedTree(tree, environment.CODE_DIR, False))
    for dataset in job_datasets.local_datasets(job):
        tree = file_sync.read_tree(
            pathlib.Path(base, str(dataset.path)).expanduser(), f"job.datasets.{dataset.name}.path"
        )
        placed.append(gang.PlacedTree(tree, f"{environment.DATA_DIR}/{dataset.name}", dataset.read_only))
    for line in _describe_ignored(placed):
        say(line)
    return CodeSource(tuple(placed), code_sha, commit)


def derive_run_id(job: Job, found: CodeSource) -> str:
    """Return the id that the same job with the same code always gets: a second run of it changes nothing."""
    return f"{job.name}-{job_digest(job, found)[:8]}"


def job_digest(job: Job, found: CodeSource) -> str:
    """Return what tells a job with its code and data from any other (SHA-256 in hexadecimal)."""
    content = [to_yaml_names(job), found.code_sha256, [item.tree.sha256 for item in found.placed]]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def rendezvous_port(identity: str) -> int:
    """Return the rendezvous port of a run: below the kernel's ephemeral range, even (the next one is the run's too)."""
    number = int.from_bytes(hashlib.sha256(identity.encode()).digest()[:4], "big")
    return _PORT_FIRST + 2 * (number % _PORT_PAIRS)


def build_context(job: Job, identity: str, attempt: int) -> RunContext:
    """Return what launchers know of a run whose first attempt has the number ``attempt``."""
    folder, part = job_checkpoints.checkpoint_folder(job, identity), job_checkpoints.folder_of_start(job, attempt)
    return RunContext(identity, rendezvous_port(identity), attempt, folder, part)


def _describe_ignored(placed: t.Iterable[gang.PlacedTree]) -> list[str]:
    """Return one line that says what ``.gitignore`` leaves out of the code, none where it leaves out nothing."""
    ignored = [name for item in placed for name in item.tree.ignored]
    more = f" and {len(ignored) - _SHOWN} more" if len(ignored) > _SHOWN else ""
    return [f"left out of the code by .gitignore: {', '.join(ignored[:_SHOWN])}{more}"] if ignored else []


def read_script(job: Job, found: CodeSource) -> tuple[str, str] | None:
    """Return the name and text of the job's Python script, None where it is not sent along or is large."""
    if not job.script or job.script.startswith("/") or job.code is None:
        return None
    wanted = str(pathlib.PurePosixPath(job.code.workdir, job.script))
    files = {
        file.path: file for item in found.placed if item.target == environment.CODE_DIR for file in item.tree.files
    }
    file = files.get(wanted)
    if file is None or not wanted.endswith(".py") or file.size > _SCRIPT_LIMIT:
        return None
    try:
        return job.script, file.source.read_bytes().decode("utf-8", "surrogateescape")
    except OSError:
        return None


def _require_script(job: Job, tree: file_sync.FileTree) -> None:
    if not job.script or job.script.startswith("/") or job.code is None:
        return
    wanted = str(pathlib.PurePosixPath(job.code.workdir, job.script))
    if wanted not in {file.path for file in tree.files}:
        if any(wanted == name or (name.endswith("/") and wanted.startswith(name)) for name in tree.ignored):
            raise InputError(
                "job.script", f"{wanted} is left out by .gitignore", f"Add the line !{wanted} to its .gitignore"
            )
        raise InputError("job.script", f"{wanted} does not exist in the code {job.code.ref}")
