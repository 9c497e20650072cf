# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The source of a run: its code and datasets on the controller, and the run id derived from them."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import pathlib
import typing as t

from ....module_utils._model import job_checkpoints, validators
from ....module_utils._model.errors import RefusedError
from ....module_utils._model.job import Job
from ....module_utils._model.wording import name_some
from ..._hosts import file_sync, gang, git_checkout
from ..._launch import environment
from ..._launch.base import RunContext

_SHOWN = 5
_PORT_FIRST, _PORT_PAIRS = 20_000, 5_000
_PEER_FIRST, _PEER_PORTS = 16_000, 4_000
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


@dataclasses.dataclass(frozen=True, slots=True)
class _LocalTree:
    """A tree of a job that is to be read: the option and reference that name it, and its place on nodes.

    ``source`` is None for a dataset. ``script`` is the file that the code must have; a folder that is ``shared`` is
    linked to.
    """

    option: str
    ref: str
    target: str
    shared: bool = False
    source: str | None = None
    sha256: str | None = None
    script: str | None = None


def read_source(
    job: Job, base: pathlib.Path, cache: pathlib.Path, say: t.Callable[[str], None] = lambda _line: None
) -> CodeSource:
    """Return the job's trees, read from the controller (relative paths are relative to ``base``)."""
    placed: list[gang.PlacedTree] = []
    code_sha = commit = None
    for wanted in _list_trees(job):
        folder = pathlib.Path(base, wanted.ref).expanduser()
        if wanted.source == "git":
            folder, commit = git_checkout.checkout_git(wanted.ref, cache, wanted.option)
        tree = file_sync.read_tree(folder, wanted.option, is_code=wanted.source == "path")
        if wanted.source:
            code_sha = tree.sha256
            if wanted.sha256 and wanted.sha256 != code_sha:
                raise RefusedError(
                    f"job.code.sha256: the code has checksum {code_sha}", "Check the code, or update job.code.sha256"
                )
        if wanted.script:
            tree.require_file(wanted.script, "job.script", f"the code {wanted.ref}")
        placed.append(gang.PlacedTree(tree, wanted.target, wanted.shared))
    for line in _describe_ignored(placed):
        say(line)
    return CodeSource(tuple(placed), code_sha, commit)


def _list_trees(job: Job) -> list[_LocalTree]:
    """Return what has to be read for a job: its code, unless the image has it, and datasets of the controller."""
    trees = [
        _LocalTree(
            f"job.datasets.{item.name}.path", str(item.path), f"{environment.DATA_DIR}/{item.name}", item.read_only
        )
        for item in job.datasets
        if item.is_local
    ]
    code = job.code
    if code is None or code.source == "image":
        return trees
    script = job.script if job.script and not job.script.startswith("/") else None
    wanted = str(pathlib.PurePosixPath(code.workdir, script)) if script else None
    own = _LocalTree("job.code.ref", code.ref, environment.CODE_DIR, False, code.source, code.sha256, wanted)
    return [own, *trees]


def derive_run_id(job: Job, found: CodeSource) -> str:
    """Return the id that the same job with the same code always gets: a second run of it changes nothing."""
    return f"{job.name}-{job_digest(job, found)[:8]}"


def job_digest(job: Job, found: CodeSource) -> str:
    """Return what tells a job with its code and data from any other (SHA-256 in hexadecimal).

    Defaults do not count: another version of the collection may have more options.
    """
    content = [validators.changed_value(job), found.code_sha256, [item.tree.sha256 for item in found.placed]]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def rendezvous_port(identity: str) -> int:
    """Return the rendezvous port of a run: below the kernel's ephemeral range, even (the next one is the run's too)."""
    number = int.from_bytes(hashlib.sha256(identity.encode()).digest()[:4], "big")
    return _PORT_FIRST + 2 * (number % _PORT_PAIRS)


def peer_port(identity: str) -> int:
    """Return the port at which the nodes of a run copy checkpoints from each other."""
    return _PEER_FIRST + int.from_bytes(hashlib.sha256(identity.encode()).digest()[4:8], "big") % _PEER_PORTS


def build_context(job: Job, identity: str, attempt: int, clock_spread_s: float = 0.0) -> RunContext:
    """Return what launchers know of a run whose first attempt has the number ``attempt``.

    :param clock_spread_s: how far the clocks of its hosts are apart; pods of one cluster are taken to have one time.
    """
    folder, part = job_checkpoints.checkpoint_folder(job, identity), job_checkpoints.folder_of_start(job, attempt)
    return RunContext(identity, rendezvous_port(identity), attempt, folder, part, clock_spread_s)


def _describe_ignored(placed: t.Iterable[gang.PlacedTree]) -> list[str]:
    """Return one line that says what ``.gitignore`` leaves out of the code, none where it leaves out nothing."""
    ignored = [name for item in placed for name in item.tree.ignored]
    return [f"left out of the code by .gitignore: {name_some(ignored, _SHOWN)}"] if ignored else []


def read_code_texts(found: CodeSource) -> t.Iterator[str]:
    """Yield the texts of the code that is sent along; large files are left out."""
    for file in (file for item in found.placed if item.target == environment.CODE_DIR for file in item.tree.files):
        if file.size <= _SCRIPT_LIMIT:
            with contextlib.suppress(OSError):
                yield file.source.read_bytes().decode("utf-8", "replace")


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
