# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Make and keep the virtual environments of the checkout: ``python -m tools.venv dev torch``.

Run by a plain Python >= 3.12 (``tools/python.sh`` finds one), standard library only. A stamp in each environment
says from which interpreter, place and requirements it was made, so a call with nothing to do takes milliseconds.
Calls at the same time wait for each other: a lock of the operating system is held while an environment is made.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time
import tomllib
import typing as t
import venv

ROOT = pathlib.Path(__file__).resolve().parent.parent
COLLECTION = ("muster", "training")
STAMP = "muster-stamp.json"


class VenvError(Exception):
    """An environment cannot be made; the message says what to do."""


@dataclasses.dataclass(frozen=True, slots=True)
class Recipe:
    """One environment: its folder below the root, its group in pyproject.toml, and whether it holds the collection.

    ``over``: another environment whose packages it sees, so that gigabytes are not installed twice. ``compiled``:
    requirements that are built once more against what the environment holds -> variables of their build.
    """

    folder: str
    group: str
    linked: bool
    effort: str
    over: str | None = None
    compiled: t.Mapping[str, t.Mapping[str, str]] = dataclasses.field(default_factory=dict)


RECIPES: t.Final[dict[str, Recipe]] = {
    "dev": Recipe(".venv", "dev", linked=True, effort="about a minute"),
    "torch": Recipe(".venv-torch", "torch", linked=False, effort="one to five minutes, 3 GB to download on Linux"),
    "launchers": Recipe(
        ".venv-launchers",
        "launchers",
        linked=False,
        effort="two to three minutes",
        over="torch",
        # DeepSpeed's collectives on CPUs: without them, every job compiles them when it starts.
        compiled={"deepspeed": {"DS_BUILD_SHM_COMM": "1", "DS_ACCELERATOR": "cpu"}},
    ),
    # Its own packages go with what launchers have; real programs of other projects run with all of them.
    "programs": Recipe(".venv-programs", "programs", linked=False, effort="two minutes", over="launchers"),
    "services": Recipe(".venv-services", "services", linked=True, effort="about a minute, 350 MB to download"),
    "core220": Recipe(".venv-core220", "core220", linked=True, effort="about half a minute"),
    "core222": Recipe(".venv-core222", "core222", linked=True, effort="about half a minute"),
}


@dataclasses.dataclass(frozen=True, slots=True)
class Stamp:
    """The inputs of an environment. ``base``: interpreter and place; ``content``: digest of what is installed."""

    base: str
    content: str


def normal_name(requirement: str) -> str:
    """The comparable name of a requirement: ``PyYAML>=6`` gives ``pyyaml`` (PEP 503)."""
    name = re.split(r"[\s\[<>=!~;@(]", requirement.strip(), maxsplit=1)[0]
    return re.sub(r"[-_.]+", "-", name).lower()


def expand_group(groups: t.Mapping[str, list[t.Any]], name: str, above: tuple[str, ...] = ()) -> list[str]:
    """The requirements of one dependency group with its included groups in place (PEP 735).

    :raises VenvError: for an unknown group, a cycle or an entry that is neither text nor ``include-group``.
    """
    if name not in groups:
        raise VenvError(f"pyproject.toml has no dependency group {name}")
    if name in above:
        raise VenvError(f"dependency groups include each other: {' -> '.join((*above, name))}")
    found: dict[str, None] = {}
    for entry in groups[name]:
        if isinstance(entry, str):
            found[entry] = None
        elif isinstance(entry, dict) and list(entry) == ["include-group"]:
            found.update(dict.fromkeys(expand_group(groups, entry["include-group"], (*above, name))))
        else:
            raise VenvError(f"dependency group {name}: cannot read the entry {entry!r}")
    return list(found)


def constraints_for(requirements: list[str], constraints: str) -> str:
    """The constraint lines that bind here: what a requirement pins exactly itself is left out."""
    pinned = {normal_name(item) for item in requirements if "==" in item}
    lines = [line.strip() for line in constraints.splitlines()]
    kept = [line for line in lines if line and not line.startswith("#") and normal_name(line) not in pinned]
    return "".join(f"{line}\n" for line in kept)


def wanted_stamp(
    root: pathlib.Path,
    requirements: list[str],
    constraints: str,
    compiled: t.Mapping[str, t.Mapping[str, str]] | None = None,
) -> Stamp:
    """The stamp of an environment made now by this interpreter."""
    built = [json.dumps(compiled, sort_keys=True)] if compiled else []
    version = ".".join(str(part) for part in sys.version_info[:3])
    digest = hashlib.sha256("\n".join([*sorted(requirements), "--", constraints, *built]).encode()).hexdigest()
    return Stamp(base=f"{version} {sys.prefix} {root}", content=digest)


def read_stamp(folder: pathlib.Path) -> Stamp | None:
    """The stamp that the last complete call left, or nothing where there is none that can be read."""
    try:
        data = json.loads((folder / STAMP).read_text(encoding="utf-8"))
        return Stamp(base=str(data["base"]), content=str(data["content"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def runs_here(folder: pathlib.Path) -> bool:
    """Whether the folder holds an environment of this very Python version that still starts and has pip."""
    probe = "import pip, sys; print(*sys.version_info[:3])"
    try:
        done = subprocess.run(
            [folder / "bin" / "python", "-c", probe], capture_output=True, text=True, check=False, timeout=60
        )
    except OSError:
        return False
    return done.returncode == 0 and done.stdout.split() == [str(part) for part in sys.version_info[:3]]


def link_collection(folder: pathlib.Path, root: pathlib.Path) -> None:
    """Make ``ansible_collections.muster.training`` of the environment resolve to the checkout."""
    namespace, name = COLLECTION
    site = next(folder.glob("lib/python3.*/site-packages"))
    link = site / "ansible_collections" / namespace / name
    if link.is_symlink() and link.readlink() == root:
        return
    link.parent.mkdir(parents=True, exist_ok=True)
    if link.is_symlink():
        link.unlink()
    elif link.exists():
        raise VenvError(f"{link} is not a link to this checkout; remove it and call again")
    link.symlink_to(root, target_is_directory=True)


def list_below(recipe: Recipe) -> list[str]:
    """The folders of the environments whose packages one sees, the nearest first."""
    return [RECIPES[recipe.over].folder, *list_below(RECIPES[recipe.over])] if recipe.over else []


def see_packages(folder: pathlib.Path, below: t.Sequence[pathlib.Path]) -> None:
    """Let an environment import what the environments ``below`` hold."""
    theirs = [next(place.glob("lib/python3.*/site-packages"), None) for place in below]
    for place, packages in zip(below, theirs, strict=True):
        if packages is None:
            raise VenvError(f"{folder.name} needs {place.name} first (make {place.name.removeprefix('.')})")
    site = next(folder.glob("lib/python3.*/site-packages"))
    (site / "muster-below.pth").write_text("".join(f"{packages}\n" for packages in theirs), encoding="utf-8")


def install(folder: pathlib.Path, requirements: list[str], constraints: str, held: int) -> None:
    """Install into an environment with its own pip; pip's messages go through.

    :param held: descriptor of the lock. pip inherits it, so that a pip that outlives a killed caller still keeps
        others away.
    """
    bounds = folder / "muster-constraints.txt"
    bounds.write_text(constraints, encoding="utf-8")
    _pip(folder, ["--constraint", os.fspath(bounds), *requirements], {}, held)


def compile_against(folder: pathlib.Path, compiled: t.Mapping[str, t.Mapping[str, str]], held: int) -> None:
    """Build requirements again with what the environment holds now; without a compiler they stay as they are."""
    if compiled and not shutil.which("c++"):
        print(f"{folder.name}: no C++ compiler (c++), so {', '.join(compiled)} compiles parts of itself in each job")
        return
    bounds = os.fspath(folder / "muster-constraints.txt")
    # A wheel in pip's cache may have been built without these variables.
    again = ["--force-reinstall", "--no-deps", "--no-build-isolation", "--no-cache-dir", "--constraint", bounds]
    for requirement, variables in compiled.items():
        _pip(folder, [*again, requirement], variables, held)


def _pip(folder: pathlib.Path, words: list[str], variables: t.Mapping[str, str], held: int) -> None:
    argv = [os.fspath(folder / "bin" / "python"), "-m", "pip", "install", "--disable-pip-version-check", "--no-input"]
    outside = {"PYTHONPATH", "PYTHONHOME", "PIP_USER", "PIP_TARGET", "PIP_PREFIX"}
    environment = {name: value for name, value in os.environ.items() if name not in outside}
    environment.update(variables)
    if subprocess.run([*argv, "--quiet", *words], env=environment, pass_fds=[held], check=False).returncode:
        raise VenvError(f"pip could not fill {folder.name}; its messages stand above. Call again to continue")


def shorten_output(folder: pathlib.Path) -> None:
    """Have an activated environment show playbooks in few lines, unless its user has a configuration of Ansible."""
    (folder / "ansible.cfg").write_text("[defaults]\nstdout_callback = muster.training.brief\n", encoding="utf-8")
    script = folder / "bin" / "activate"
    line = (
        '[ -n "${ANSIBLE_CONFIG:-}" ] || [ -e ansible.cfg ] || [ -e ~/.ansible.cfg ] || '
        'export ANSIBLE_CONFIG="$VIRTUAL_ENV/ansible.cfg"\n'
    )
    text = script.read_text(encoding="utf-8")
    if line not in text:
        script.write_text(text + line, encoding="utf-8")


@contextlib.contextmanager
def lock(root: pathlib.Path, name: str) -> t.Iterator[int]:
    """Let one process at a time work on what ``name`` stands for; the others wait and say so.

    Gives the descriptor that holds the lock, until the last process that has it ends.
    """
    folder = root / ".cache" / "locks"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / name).open("w", encoding="utf-8") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"{name}: another call works on it, waiting", flush=True)
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield handle.fileno()


def ensure(name: str, root: pathlib.Path = ROOT) -> bool:
    """Bring one environment to what its recipe says; true when something was done."""
    recipe = RECIPES[name]
    groups = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["dependency-groups"]
    requirements = expand_group(groups, recipe.group)
    constraints = constraints_for(requirements, (root / "tools" / "constraints.txt").read_text(encoding="utf-8"))
    wanted = wanted_stamp(root, requirements, constraints, recipe.compiled)
    folder = root / recipe.folder
    if folder.is_symlink():
        # Making it here would empty what another checkout uses.
        raise VenvError(
            f"{recipe.folder} is a link to {folder.readlink()}; remove it, or name the interpreter behind it"
        )
    with lock(root, f"venv-{name}") as held:
        present = read_stamp(folder)
        if present == wanted:
            return False
        started = time.monotonic()
        print(f"{recipe.folder}: {len(requirements)} requirements, {recipe.effort}", flush=True)
        (folder / STAMP).unlink(missing_ok=True)
        stays = (present is None or present.base == wanted.base) and runs_here(folder)
        if not stays:
            venv.create(folder, clear=True, symlinks=True, with_pip=True)
        if recipe.over:
            see_packages(folder, [root / below for below in list_below(recipe)])
        install(folder, requirements, constraints, held)
        compile_against(folder, recipe.compiled, held)
        if recipe.linked:
            link_collection(folder, root)
            shorten_output(folder)
        (folder / STAMP).write_text(json.dumps(dataclasses.asdict(wanted)), encoding="utf-8")
        print(f"{recipe.folder}: ready after {time.monotonic() - started:.0f} s", flush=True)
    return True


def main(names: list[str]) -> int:
    """Make the named environments in turn."""
    unknown = [name for name in names if name not in RECIPES]
    if unknown or not names:
        print(f"name environments to make: {', '.join(RECIPES)} (got: {' '.join(names) or 'none'})", file=sys.stderr)
        return 2
    try:
        for name in names:
            ensure(name)
    except (VenvError, OSError, subprocess.SubprocessError) as error:
        print(f"venv: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
