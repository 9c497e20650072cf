# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The environment of a job with ``requirements``: a virtual environment for each set of them, beside what Python has.

The folder is named by a digest of the requirements and of the interpreter that they are added to. Nodes that share the
path (several on one machine, or a home on a network disk) share the environment: the first one makes it under a lock.
"""

# pylint: disable=ansible-bad-function  # on a node by itself, with no AnsibleModule around it
from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import time
import typing as t

from . import files, host_preflight

# Beside the folders of the nodes, whose names never begin with a dot.
FOLDER = ".envs"
_COMPLETE = "complete.json"
_BASE = (
    "import json, sys; print(json.dumps([list(sys.version_info[:3]), "
    "[p for p in sys.path if p.endswith(('site-packages', 'dist-packages'))]]))"
)
_RUN_S = 1700.0
# What the requirements of an environment are called where people set them.
_JOB, _BOOTSTRAP = "job.requirements", "muster_training_requirements"


def answer(state: pathlib.Path, request: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Make the environment unless it is there; return ``{python, made, folder}``, or a ``problem`` with its ``fix``.

    :param request: ``python``, ``requirements`` (lines as pip takes them), ``check`` (make nothing; ``python`` is then
        null where it is not there). With ``folder`` it is that environment that gets the packages, without those of its
        interpreter. ``background``: return at once; the same request without it then waits, and has the reason.
    """
    began = time.time()
    base = host_preflight.find_python(str(request["python"]))
    if base is None:
        return {"problem": f"{request['python']} does not exist", "fix": "Set muster_training_python or job.python"}
    version, site_paths = json.loads(_run([base, "-c", _BASE]))
    wanted = [str(line) for line in request["requirements"]]
    digest = hashlib.sha256(json.dumps([wanted, base, version]).encode()).hexdigest()[:16]
    own = request.get("folder")
    folder = pathlib.Path(own).expanduser() if own else state.parent / FOLDER / digest
    python = str(folder / "bin" / "python")
    result = {"python": python, "made": False, "folder": str(folder)}
    if not own and (folder / _COMPLETE).exists():
        return result
    if request.get("check"):
        return {**result, "python": None}
    folder.parent.mkdir(parents=True, exist_ok=True)
    if request.get("background"):
        # The first holder of the lock makes it: a request that waits for the lock finds it there, or makes it itself.
        _in_background(lambda: answer(state, {**request, "background": False}))
        return {**result, "made": True}
    with _lock(folder.with_name(f".{folder.name}.lock")):
        if _is_complete(folder, wanted, began if own else 0.0):
            return result
        problem = _make(folder, base, [] if own else site_paths, wanted)
        if problem:
            return problem
        files.write_json(folder / _COMPLETE, {"requirements": wanted, "base": base, "at": time.time()})
    return {**result, "made": True}


def _make(folder: pathlib.Path, base: str, paths: t.Sequence[str], wanted: t.Sequence[str]) -> dict[str, t.Any] | None:
    """Make the environment; return the problem, if there is one. A folder that was left unfinished is made anew."""
    try:
        if paths or not (folder / "bin" / "python").exists():
            _run([base, "-m", "venv", "--clear", str(folder)])
        if paths:
            _see_base(folder, paths)
        (folder / "requirements.txt").write_text("".join(f"{line}\n" for line in wanted))
        pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--disable-pip-version-check", "--no-input"]
        _run([*pip, "--requirement", str(folder / "requirements.txt")])
    except subprocess.CalledProcessError as error:
        if paths:
            shutil.rmtree(folder, ignore_errors=True)
        return _explain(base, str(error.output or ""), _JOB if paths else _BOOTSTRAP)
    except subprocess.TimeoutExpired:
        return {
            "problem": f"{_JOB if paths else _BOOTSTRAP}: not installed within {_RUN_S:.0f} s",
            "fix": "Check the package index",
        }
    return None


def _see_base(folder: pathlib.Path, paths: t.Sequence[str]) -> None:
    """Let the environment see the packages of its interpreter, after its own; so torch is not installed twice."""
    (own,) = (folder / "lib").glob("python3*/site-packages")
    (own / "muster_base.pth").write_text("".join(f"{path}\n" for path in paths))


def _explain(base: str, output: str, option: str) -> dict[str, t.Any]:
    lines = [line for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if line.upper().startswith("ERROR")] or lines[-1:] or ["no output"]
    if "ensurepip" in output:
        return {
            "problem": f"{option}: {base} cannot make virtual environments",
            "fix": "Install its venv package (on Debian and Ubuntu python3-venv), or name another interpreter",
        }
    # The index may be named with a password.
    reason = re.sub(r"//[^/@\s]+@", "//", errors[0])[:300]
    return {"problem": f"{option}: pip: {reason}", "fix": "Check the names, versions and the package index"}


def _is_complete(folder: pathlib.Path, wanted: t.Sequence[str], since: float) -> bool:
    """Return whether the environment was made, after ``since``: by another node while this one waited for the lock."""
    mark = files.read_json(folder / _COMPLETE) or {}
    return bool(mark) and mark["requirements"] == list(wanted) and mark["at"] >= since


def _in_background(work: t.Callable[[], object]) -> None:
    """Do the work in a process that outlives this request and its connection."""
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return
    os.setsid()
    if os.fork():
        os._exit(0)
    try:
        nowhere = os.open(os.devnull, os.O_RDWR)
        for descriptor in range(3):
            os.dup2(nowhere, descriptor)
        work()
    finally:
        os._exit(0)


@contextlib.contextmanager
def _lock(place: pathlib.Path) -> t.Iterator[None]:
    with open(place, "a") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _run(argv: t.Sequence[str]) -> str:
    done = subprocess.run(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        timeout=_RUN_S,
        check=False,
        env={key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "PYTHONHOME")},
    )
    if done.returncode:
        raise subprocess.CalledProcessError(done.returncode, argv, done.stdout)
    return done.stdout
