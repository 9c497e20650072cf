# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which variables look like ones of the collection, and are none.

Ansible takes any name, and a misspelt one has no effect: an order is not bounded by its price cap. Where money is spent
or something is deleted such a name is an error, elsewhere a warning.
"""

from __future__ import annotations

import difflib
import functools
import pathlib
import re
import typing as t

from ansible import context
from ansible.errors import AnsibleError
from ansible.parsing.dataloader import DataLoader
from ansible.utils.display import Display
from ansible.utils.vars import load_extra_vars

from ...module_utils._model.errors import InputError
from ...module_utils._model.job_catalogue import ANSWERS

_ANSWER_PREFIXES = tuple(f"{name}_" for name in ANSWERS.values())
_COLLECTION = pathlib.Path(__file__).resolve().parents[3]
# Prefixes that other collections do not use: only with these a name is an error, or is looked for in the inventory.
_RESERVED = ("muster_", "rented_nodes_", "teardown_")
_WORD = re.compile(r"[a-z0-9_]+")
_VARIABLE = re.compile(rf"\b(?:{'|'.join(_RESERVED)})[a-z0-9_]+")
_SPENDING = ("rent", "heal", "watch")
_DELETING = ("cancel", "cluster_absent", "local_nodes_absent", "prune", "reap", "remove_nodes", "team", "teardown")


@functools.cache
def _known_names() -> dict[str, frozenset[str]]:
    """Return the names of the collection by prefix, longest prefix first."""
    roles = (place.name for place in _COLLECTION.glob("roles/*"))
    prefixes = sorted({"muster_", "diagnose_", *(f"{role}_" for role in roles)}, key=len, reverse=True)
    places = [*_COLLECTION.glob("playbooks/**/*.yml"), *_COLLECTION.glob("roles/*/*/*.yml")]
    words = {name for place in places for name in _WORD.findall(place.read_text(encoding="utf-8"))}
    return {prefix: frozenset(name for name in words if name.startswith(prefix)) for prefix in prefixes}


def find_misspelt(names: t.Iterable[str], prefixes: tuple[str, ...] | None = None) -> list[str]:
    """Return a line for each variable that looks like one of the collection (with one of ``prefixes``), and is none."""
    known = _known_names()
    lines = []
    for name in sorted(names):
        prefix = next((item for item in prefixes or known if name.startswith(item)), None)
        if prefix not in known or name in known[prefix] or name.startswith(_ANSWER_PREFIXES):
            continue
        near = _find_near(name.removeprefix(prefix), [item.removeprefix(prefix) for item in known[prefix]])
        if near:
            lines.append(f"{name} is not a variable of muster.training. Did you mean {prefix}{near}?")
    return lines


def _find_near(name: str, known: t.Sequence[str]) -> str | None:
    """Return the variable that is meant: one that is written much like it, else the only one of which it is a part."""
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.8)
    whole = [item for item in known if item.startswith(f"{name}_")] if not near else []
    return near[0] if near else whole[0] if len(whole) == 1 else None


def find_variables(arguments: t.Mapping[str, t.Any]) -> dict[str, str]:
    """Return, by option, the variable of the collection that a task's ``arguments``, as they are written, take it from.

    The options of a job are named as ``job`` everywhere.
    """
    found = {option: _VARIABLE.findall(text) for option, text in arguments.items() if isinstance(text, str)}
    return {option: _choose(option, names) for option, names in found.items() if names and option != "job"}


def _choose(option: str, names: t.Sequence[str]) -> str:
    """Return the variable that an option is taken from: the others decide whether it is."""
    return next((name for name in names if name.endswith(f"_{option}")), names[0])


def name_variable(error: InputError, variables: t.Mapping[str, str]) -> InputError:
    """Return the error with the variable in place of the option that it names."""
    option = re.split(r"[.\[]", error.option, maxsplit=1)[0]
    problem = error.message.removeprefix(f"{error.option}: ")
    return InputError(f"{variables.get(option, option)}{error.option[len(option) :]}", problem, error.fix)


def require_known(names: t.Iterable[str]) -> None:
    """Refuse names with a prefix of the collection that look like one of its variables.

    :raises InputError: naming them, with what is meant.
    """
    _refuse(find_misspelt(names, _RESERVED))


def _refuse(lines: t.Sequence[str]) -> None:
    if lines:
        raise InputError("variables", f"nothing was done: {' '.join(lines)} Correct or rename it")


def warn_of_misspelt(names: t.Iterable[str]) -> None:
    """Warn of such names, but for those of the command line, of which a warning was shown at the start."""
    for line in find_misspelt(set(names) - set(load_extra_vars(DataLoader())), _RESERVED):
        Display().warning(line)


def check_command_line() -> None:
    """Warn of the misspelt variables of the command line, before any task of the collection has run.

    :raises AnsibleError: where the playbook spends money or deletes something: that ends it.
    """
    given = load_extra_vars(DataLoader()) if context.CLIARGS.get("extra_vars") else {}
    playbooks = {
        str(item).removesuffix(".yml").replace("/", ".").rpartition(".")[2]
        for item in context.CLIARGS.get("args") or ()
    }
    if playbooks & {*_SPENDING, *_DELETING}:
        try:
            _refuse(find_misspelt(given, (*_RESERVED, *(f"{name}_" for name in playbooks))))
        except InputError as error:
            raise AnsibleError(str(error)) from None
    for line in find_misspelt(given):
        Display().warning(line)
