# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The node agent as it is sent to a node: its sources with the first request, then requests to the installed copy.

The agent is ``module_utils/_node``, which is one flat folder because it travels as one package, ``muster_node``.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import json
import pathlib
import re
import shlex
import typing as t
import zlib

from ...module_utils._model.errors import NodeError, UnreachableError

_SOURCES = pathlib.Path(__file__).parents[2] / "module_utils" / "_node"
_MINIMUM = "3.10"
_TERMINAL_FIX = "Leave out -t and -tt of ansible_ssh_extra_args, and RequestTTY force of ~/.ssh/config"
_PYTHON_FIX = f"Install Python {_MINIMUM} or newer, or set ansible_python_interpreter"
# The requests of a start, and the files that these need; other requests, and facts, are sent with all files.
_STARTS = ("info", "put", "install", "prepare", "start", "watch", "stop", "claim")
_CORE = (
    "facts_net",
    "facts_pci",
    "facts_source",
    "files",
    "host_agent",
    "host_blobs",
    "host_log_follow",
    "host_preflight",
    "host_rendezvous",
    "host_units",
    "mount_marker",
    "processes",
    "secret_mask",
    "shared_folder",
)
MARK = "\x1emuster\x1e"

# Runs the sources that come on standard input from memory: a request that only reads writes nothing on the node.
_BOOT = """
import sys
if sys.version_info < (3, 10):
    sys.exit("muster: Python %d.%d is too old" % sys.version_info[:2])
if sys.stdin.isatty():
    sys.exit("muster: standard input is a terminal")
import base64, importlib.abc, importlib.util, json, zlib
head = json.loads(sys.stdin.buffer.readline())
sources = json.loads(zlib.decompress(base64.b64decode(head["sources"])))
class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path=None, target=None):
        if name == "muster_node":
            return importlib.util.spec_from_loader(name, self, is_package=True)
        if name.startswith("muster_node.") and name[12:] + ".py" in sources:
            return importlib.util.spec_from_loader(name, self)
    def exec_module(self, module):
        if module.__name__ != "muster_node":
            file = module.__name__[12:] + ".py"
            exec(compile(sources[file], "muster_node/" + file, "exec"), module.__dict__)
sys.meta_path.insert(0, Finder())
from muster_node import host_agent
host_agent.main([""])
"""
_ENTRY = """import os, pathlib, sys
os.umask(0o077)
sys.path.insert(0, str(pathlib.Path(__file__).parent))
from muster_node import host_agent
sys.exit(host_agent.main(sys.argv))
"""


@functools.cache
def read_sources() -> dict[str, str]:
    """Return the agent's source files by name."""
    return {path.name: path.read_text() for path in sorted(_SOURCES.glob("*.py"))}


@functools.cache
def agent_version() -> str:
    """Return a digest of the agent's sources, so that each release installs its own copy."""
    return hashlib.sha256(json.dumps([_ENTRY, read_sources()], sort_keys=True).encode()).hexdigest()[:16]


def boot_command(python: str | None) -> str:
    """Return the shell command that runs a request from memory: in one line that any login shell takes, csh too."""
    text = base64.b64encode(_BOOT.encode()).decode()
    return _start(python, f'-I -S -c "import base64,sys;exec(base64.b64decode(sys.argv.pop()))" {text}')


def _start(python: str | None, arguments: str) -> str:
    """Return a command for any login shell: csh does not know ``$(…)``, so that ``sh`` looks for an interpreter."""
    if python:
        return f"exec {shlex.quote(python)} {arguments}"
    script = f'exec "$(command -v python3 || echo python3)" {arguments}'
    return f"exec /bin/sh -c {shlex.quote(script)}"


def boot_input(request: t.Mapping[str, t.Any]) -> bytes:
    """Return standard input for :func:`boot_command`."""
    whole = bool(request.get("facts") or request.get("checkpoints")) or request.get("op") not in _STARTS
    return json.dumps({"sources": _pack_sources(whole)}).encode() + b"\n" + encode_request(request)


def install_request() -> dict[str, t.Any]:
    """Return the fields of the request that installs this version of the agent."""
    return {"version": agent_version(), "sources": read_sources(), "entry": _ENTRY}


def installed_command(python: str | None, program: str, reads: bool = False) -> str:
    """Return the shell command that sends a request to the installed agent; one that only reads leaves no byte-code."""
    return _start(python, f"-I -S {'-B ' if reads else ''}{shlex.quote(program + '/run.py')}")


def encode_request(request: t.Mapping[str, t.Any]) -> bytes:
    """Return standard input for :func:`installed_command`: one line, which files may follow."""
    return json.dumps(request).encode() + b"\n"


def is_current_version(program: str) -> bool:
    """Return whether a folder on a node holds this version of the agent."""
    return program.endswith(f"/agent/{agent_version()}")


def is_removed(output: tuple[int, str, str]) -> bool:
    """Return whether the interpreter did not find the installed agent: (exit code, standard output, standard error)."""
    return output[0] == 2 and "can't open file" in output[2] and not has_answer(output[1])


def has_answer(out: str) -> bool:
    """Return whether the output holds an agent's answer."""
    return MARK in out


def parse_answer(node: str, rc: int, out: str, err: str) -> dict[str, t.Any]:
    """Return the agent's answer.

    :raises NodeError: when there is no answer: no Python, one that is too old, or an agent that failed.
    """
    _unused, mark, text = out.partition(MARK)
    if mark:
        try:
            return t.cast("dict[str, t.Any]", json.loads(text.splitlines()[0]))
        except (ValueError, IndexError) as exc:
            raise UnreachableError(node, "its answer was cut off", "Check the connection and run again") from exc
    # A login's own files may print errors as well: what the agent or its interpreter says decides.
    if old := re.search(r"(?m)^muster: (Python \S+ is too old)", err):
        raise NodeError(node, old[1], _PYTHON_FIX)
    if "muster: standard input is a terminal" in out + err:
        # A terminal cuts long lines, and never says that they have ended.
        raise NodeError(node, "ssh gives commands a terminal", _TERMINAL_FIX)
    if rc == 127 or re.search(r"(?m)(?:python|/py)\S*: (?:command )?not found", err):
        raise NodeError(node, "python3 is not installed", _PYTHON_FIX)
    last = (err.strip().splitlines() or ["no output"])[-1][:300]
    raise NodeError(node, f"the node agent did not answer (exit code {rc}: {last})")


@functools.cache
def _pack_sources(whole: bool) -> str:
    package = {name: text for name, text in read_sources().items() if whole or name.removesuffix(".py") in _CORE}
    return base64.b64encode(zlib.compress(json.dumps(package).encode(), 6)).decode()
