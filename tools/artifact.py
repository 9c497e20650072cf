# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Build what a user installs and look at it from outside: ``python -m tools.artifact build|docs|syntax [BIN]``.

``build`` packs a clean copy of the project and installs the archive into an empty folder. ``docs`` asks ansible-doc
for every plugin and role, ``syntax`` reads every playbook, both from that folder alone: the link to the checkout
that the environments carry is switched off. BIN is the folder of the Ansible commands to use.
"""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import typing as t

from .tree import COLLECTION, ROOT, TreeError, copy_files, project_files

WORK = ROOT / "build" / "artifact"
# The list of files that was packed, so that later looks ask for what is in the archive.
FILES = WORK / "files.txt"
# Folders of plugins/ that ansible-doc knows under a type; filter and test files may hold several plugins.
DOCUMENTED: t.Final[dict[str, str]] = {
    "become": "become",
    "cache": "cache",
    "callback": "callback",
    "connection": "connection",
    "filter": "filter",
    "inventory": "inventory",
    "lookup": "lookup",
    "modules": "module",
    "strategy": "strategy",
    "test": "test",
    "vars": "vars",
}
MANY_IN_A_FILE = frozenset({"filter", "test"})
ATTRIBUTES = ("check_mode", "diff_mode", "idempotent")
# What a user gets; a file of these folders that is not in the archive is a mistake in build_ignore.
SHIPPED = ("LICENSE", "README.md", "extensions/", "meta/", "playbooks/", "plugins/", "roles/")
UNWANTED = (".", "Makefile", "build/", "molecule/", "pyproject.toml", "tests/", "tools/")


class ArtifactError(Exception):
    """The archive or something in it is not as it should be."""


def plugin_names(files: t.Iterable[str], read: t.Callable[[str], str]) -> dict[str, set[str]]:
    """Public plugins by ansible-doc type, from the paths of the project.

    :param read: gives the text of one of ``files``.
    """
    found: dict[str, set[str]] = {}
    for name in files:
        parts = pathlib.PurePosixPath(name).parts
        if len(parts) != 3 or parts[0] != "plugins" or parts[1] not in DOCUMENTED or parts[2].startswith("_"):
            continue
        path = pathlib.PurePosixPath(name)
        sidecar = path.suffix in {".yml", ".yaml"}
        documented = parts[1] not in MANY_IN_A_FILE or "DOCUMENTATION =" in read(name)
        if sidecar or (path.suffix == ".py" and documented):
            found.setdefault(DOCUMENTED[parts[1]], set()).add(path.stem)
    return found


def role_names(files: t.Iterable[str]) -> set[str]:
    """Public roles: folders below roles/ with tasks."""
    paths = (pathlib.PurePosixPath(name).parts for name in files)
    return {parts[1] for parts in paths if len(parts) > 3 and parts[0] == "roles" and parts[2] == "tasks"}


def playbook_names(files: t.Iterable[str]) -> list[str]:
    """Names of the playbooks, without the files that only describe one (``x.meta.yml``)."""
    paths = (pathlib.PurePosixPath(name) for name in files)
    top = [path for path in paths if path.parts[0] == "playbooks" and len(path.parts) == 2]
    return sorted(path.stem for path in top if path.suffix == ".yml" and "." not in path.stem)


def complaints(archived: set[str], files: t.Iterable[str]) -> list[str]:
    """What is wrong with the list of files in the archive."""
    missing = [name for name in sorted(files) if name.startswith(SHIPPED) and name not in archived]
    unwanted = [name for name in sorted(archived) if name.startswith(UNWANTED)]
    lines = [f"missing in the archive: {name}" for name in missing]
    return lines + [f"should not be packed: {name}" for name in unwanted]


def run(argv: list[str], *, collections: pathlib.Path | None = None) -> str:
    """Run an Ansible command without any setting of the user; returns stdout.

    :raises ArtifactError: with the command's output when it fails.
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_")}
    environment["ANSIBLE_HOME"] = os.fspath(WORK / "home")
    environment["ANSIBLE_CONFIG"] = os.fspath(WORK / "ansible.cfg")
    environment["ANSIBLE_NOCOLOR"] = "1"
    if collections is not None:
        environment["ANSIBLE_COLLECTIONS_PATH"] = os.fspath(collections)
        environment["ANSIBLE_COLLECTIONS_SCAN_SYS_PATH"] = "false"
    empty = WORK / "empty"
    empty.mkdir(parents=True, exist_ok=True)
    (WORK / "ansible.cfg").write_text("[defaults]\n", encoding="utf-8")
    done = subprocess.run(argv, cwd=empty, env=environment, capture_output=True, text=True, check=False, timeout=600)
    if done.returncode:
        raise ArtifactError(f"{pathlib.Path(argv[0]).name} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def build(tools: pathlib.Path) -> str:
    """Pack, compare the archive with the project, install. Returns one line about it."""
    shutil.rmtree(WORK, ignore_errors=True)
    files = project_files(ROOT)
    copy_files(ROOT, WORK / "source", files)
    FILES.write_text("\n".join(files), encoding="utf-8")
    galaxy = os.fspath(tools / "ansible-galaxy")
    run([galaxy, "collection", "build", os.fspath(WORK / "source"), "--output-path", os.fspath(WORK)])
    archive = next(WORK.glob("*.tar.gz"))
    with tarfile.open(archive) as handle:
        names = {member.name for member in handle.getmembers() if not member.isdir()}
    wrong = complaints(names, files)
    if wrong:
        raise ArtifactError("\n".join(wrong))
    target = WORK / "collections"
    target.mkdir()
    # Without the switch in run() galaxy would find the linked checkout and say that nothing is to be done.
    argv = [galaxy, "collection", "install", os.fspath(archive), "-p", os.fspath(target), "--no-deps", "--offline"]
    run(argv, collections=target)
    place = target.joinpath("ansible_collections", *COLLECTION.split("."))
    absent = sorted(name for name in names if not os.path.lexists(place / name))
    if absent:
        raise ArtifactError(f"not installed from the archive: {', '.join(absent[:5])} ({len(absent)} files)")
    return f"{archive.name}: {len(names)} files, {archive.stat().st_size // 1024} KiB"


def packed_files() -> tuple[str, ...]:
    """The files of the project at the time of ``build``."""
    if not FILES.exists():
        raise ArtifactError("nothing is built yet; run the build action first")
    return tuple(FILES.read_text(encoding="utf-8").splitlines())


def _names_wanted(tools: pathlib.Path, files: tuple[str, ...]) -> dict[str, set[str]]:
    wanted = plugin_names(files, lambda name: (WORK / "source" / name).read_text(encoding="utf-8"))
    # Filters and tests are also listed by Ansible itself: a plugin without documentation has no name in a path.
    for kind in sorted(MANY_IN_A_FILE):
        if any(name.startswith(f"plugins/{kind}/") for name in files):
            argv = [os.fspath(tools / "ansible-doc"), "--type", kind, "--list", "--json", COLLECTION]
            listed = json.loads(run(argv, collections=WORK / "collections"))
            wanted.setdefault(kind, set()).update(name.rpartition(".")[2] for name in listed)
    roles = role_names(files)
    return {**wanted, "role": roles} if roles else wanted


def docs(tools: pathlib.Path) -> str:
    """Ask ansible-doc for every plugin and role that the project has. Returns one line about it."""
    installed = WORK / "collections"
    wanted = _names_wanted(tools, packed_files())
    for kind, names in sorted(wanted.items()):
        full = sorted(f"{COLLECTION}.{name}" for name in names)
        argv = [os.fspath(tools / "ansible-doc"), "--type", kind, "--json", *full]
        shown = json.loads(run(argv, collections=installed))
        found = {name: shortcoming(kind, shown.get(name)) for name in full}
        if any(found.values()):
            raise ArtifactError("; ".join(f"{kind} {name} {problem}" for name, problem in found.items() if problem))
        # The page for people is made by other code than the JSON, and fails on other mistakes.
        run([*argv[:3], *full], collections=installed)
    total = sum(len(names) for names in wanted.values())
    return f"{total} documented" if total else "no plugin or role to document yet"


def shortcoming(kind: str, entry: object) -> str:
    """What ansible-doc's answer about one name lacks, empty when it is complete.

    A role has a short description for each entry point; a plugin a description; a module also examples, return
    values and the attributes that say how it treats check mode, diff mode and a second run.
    """
    if not isinstance(entry, dict):
        return "is not found"
    if "error" in entry:
        return f"has documentation that cannot be read: {entry['error']}"
    if kind == "role":
        points = entry.get("entry_points")
        described = isinstance(points, dict) and points and all(p.get("short_description") for p in points.values())
        return "" if described else "lacks an entry point with a short description"
    about = entry.get("doc") or {}
    there = {"description": about.get("description")}
    if kind == "module":
        attributes = set(about.get("attributes") or ())
        there |= {"examples": entry.get("examples"), "return values": entry.get("return")}
        there |= {f"the attribute {name}": name in attributes for name in ATTRIBUTES}
    missing = [name for name, value in there.items() if not value]
    return f"lacks {', '.join(missing)}" if missing else ""


def syntax(tools: pathlib.Path) -> str:
    """Read every playbook by its full name. Returns one line about it."""
    names = playbook_names(packed_files())
    if not names:
        return "no playbook yet"
    argv = [os.fspath(tools / "ansible-playbook"), "--syntax-check", "--inventory", "localhost,"]
    run([*argv, *(f"{COLLECTION}.{name}" for name in names)], collections=WORK / "collections")
    return f"{len(names)} playbooks"


ACTIONS: t.Final[dict[str, t.Callable[[pathlib.Path], str]]] = {"build": build, "docs": docs, "syntax": syntax}


def main(arguments: list[str]) -> int:
    """Run one action; a line about it on stdout, or what is wrong on stderr."""
    if not 1 <= len(arguments) <= 2 or arguments[0] not in ACTIONS:
        print(f"name an action: {', '.join(ACTIONS)}", file=sys.stderr)
        return 2
    tools = pathlib.Path(arguments[1]).absolute() if len(arguments) == 2 else pathlib.Path(sys.executable).parent
    try:
        print(ACTIONS[arguments[0]](tools))
    except (ArtifactError, TreeError, OSError, subprocess.SubprocessError) as error:
        print(f"{arguments[0]}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
