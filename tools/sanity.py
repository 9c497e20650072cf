# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run ansible-test on a physical copy of the project: ``python -m tools.sanity sanity|units|integration [option…]``.

Without containers ansible-test builds virtual environments of its own and downloads pip's bootstrap script for
them from a server that closed networks do not reach. A file placed beforehand in its cache is used instead, so
this module places one that installs the wanted pip from a wheel fetched by the environment's own pip, and with it
from whatever index that is set to use. ansible-test hands its children no PIP_* variables: those settings are
written to a pip.conf in a home folder of its own, readable by its owner alone.
"""

from __future__ import annotations

import ast
import configparser
import importlib.util
import io
import os
import pathlib
import re
import subprocess
import sys

from .tree import ROOT, TreeError, copy_collection

COMMANDS = ("sanity", "units", "integration")
# Read by pip from its configuration but of no use, or harmful, inside the environments of ansible-test.
DROPPED = frozenset({"require-virtualenv", "user", "target", "prefix", "root", "quiet", "verbose", "constraint"})

STAND_IN = '''\
"""Install pip from the wheel that lies beside this file; takes the arguments of pip's bootstrap script."""

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "{wheel}"))

from pip._internal.cli.main import main

wanted = [item for item in sys.argv[1:] if not item.startswith("--no-")]
sys.exit(main(["install", "--no-index", "--find-links", HERE, *wanted]))
'''


class SanityError(Exception):
    """ansible-test cannot be prepared."""


def wanted_pip(source: str) -> str:
    """The pip version that ansible-test's requirements code installs: ``pip='25.2'`` gives ``25.2``.

    :param source: text of ``ansible_test/_internal/python_requirements.py``.
    :raises SanityError: when the text names none or several.
    """
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.keyword) and node.arg == "pip" and isinstance(node.value, ast.Constant):
            found.add(str(node.value.value))
        elif isinstance(node, ast.Dict):
            pairs = zip(node.keys, node.values, strict=True)
            found |= {
                str(value.value)
                for key, value in pairs
                if isinstance(key, ast.Constant) and key.value == "pip" and isinstance(value, ast.Constant)
            }
    versions = {item for item in found if re.fullmatch(r"\d+(\.\d+)+", item)}
    if len(versions) != 1:
        raise SanityError(f"cannot tell which pip ansible-test wants (found: {', '.join(sorted(versions)) or 'none'})")
    return versions.pop()


def installed_wanted_pip() -> str:
    """The pip version that the ansible-test of this environment wants."""
    package = importlib.util.find_spec("ansible_test")
    if package is None or not package.submodule_search_locations:
        raise SanityError("ansible-test is not installed in this environment; call `make venv`")
    path = pathlib.Path(package.submodule_search_locations[0], "_internal", "python_requirements.py")
    return wanted_pip(path.read_text(encoding="utf-8"))


def pip_settings(listing: str) -> dict[str, str]:
    """Options from the output of ``pip config list``; the environment's come after and win over a file's.

    Lines read ``global.cert='/path'`` or ``:env:.index-url='…'``; what concerns one subcommand only is left out,
    except ``install``.
    """
    found: dict[str, dict[str, str]] = {"global": {}, "install": {}, ":env:": {}}
    for line in listing.splitlines():
        match = re.fullmatch(r"(:env:|[a-z]+)\.([a-z0-9-]+)=(.+)", line.strip())
        if match is None or match[1] not in found or match[2] in DROPPED:
            continue
        try:
            value = ast.literal_eval(match[3])
        except (ValueError, SyntaxError):
            continue
        found[match[1]][match[2]] = str(value)
    return {**found["global"], **found["install"], **found[":env:"]}


def pip_conf(settings: dict[str, str]) -> str:
    """The text of a pip.conf with these options."""
    parser = configparser.RawConfigParser()
    parser["global"] = settings
    text = io.StringIO()
    parser.write(text)
    return text.getvalue()


def _pip(*arguments: str) -> str:
    argv = [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=600)
    if done.returncode:
        raise SanityError(f"pip {arguments[0]} failed: {done.stderr.strip().splitlines()[-1:]}")
    return done.stdout


def _write_private(path: pathlib.Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as handle:
        handle.write(text)


def prepare_home(home: pathlib.Path) -> None:
    """Place pip's settings and the bootstrap stand-in where ansible-test looks for them."""
    settings = pip_settings(_pip("config", "list"))
    settings["cache-dir"] = _pip("cache", "dir").strip()
    _write_private(home / ".config" / "pip" / "pip.conf", pip_conf(settings))
    version = installed_wanted_pip()
    cache = home / ".ansible" / "test" / "cache"
    cache.mkdir(parents=True, exist_ok=True)
    if not list(cache.glob(f"pip-{version}-*.whl")):
        _pip("download", "--no-deps", "--quiet", "--dest", os.fspath(cache), f"pip=={version}")
    wheel = next(cache.glob(f"pip-{version}-*.whl")).name
    script = cache / f"get_pip_{version.replace('.', '_')}.py"
    script.write_text(STAND_IN.format(wheel=wheel), encoding="utf-8")


def environment(home: pathlib.Path) -> dict[str, str]:
    """The environment of ansible-test: this interpreter's tools first, its own home, no settings of Ansible's."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("ANSIBLE_", "PYTHON"))}
    path = os.pathsep.join([os.fspath(pathlib.Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    return {**kept, "PATH": path, "HOME": os.fspath(home)}


def main(arguments: list[str]) -> int:
    """Run one ansible-test command; its exit status is the answer."""
    if not arguments or arguments[0] not in COMMANDS:
        print(f"name what ansible-test is to run: {', '.join(COMMANDS)}", file=sys.stderr)
        return 2
    home = ROOT / ".cache" / "ansible-test-home"
    try:
        prepare_home(home)
        # A copy for each command: make test may run two of them at a time.
        copy = copy_collection(ROOT, ROOT / "build" / "tree" / arguments[0])
    except (SanityError, TreeError, OSError, subprocess.SubprocessError) as error:
        print(f"ansible-test: {error}", file=sys.stderr)
        return 2
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    tool = pathlib.Path(sys.executable).parent / "ansible-test"
    argv = [os.fspath(tool), arguments[0], "--python", version, "--color", "no", *arguments[1:]]
    return subprocess.run(argv, cwd=copy, env=environment(home), check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
