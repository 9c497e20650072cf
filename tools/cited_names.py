# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What texts advise exists: playbooks, roles, plugins, variables and options of jobs that messages and guides name.

``python -m tools.cited_names`` prints each place as ``file:line: name``. ``tests/unit/test_words.py`` holds it
empty.
"""

from __future__ import annotations

import functools
import pathlib
import re
import sys
import typing as t

import yaml

from ansible_collections.muster.training.plugins.plugin_utils._services.monitoring import gpu_textfile
from ansible_collections.muster.training.plugins.plugin_utils._workflows.node_pool import lease_metrics
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.monitoring import run_figures

from . import variables, words
from .tree import ROOT, project_files

_QUALIFIED = re.compile(r"\bmuster\.training\.(?P<name>_?[a-z][a-z0-9_]*)(?![\w/*{}-]|\.[a-z])")
# Without quotes only a name with an underscore differs from the next word of the sentence, and Kubernetes, Vault and
# MPI have roles, too.
_NAMED = re.compile(
    r"\bplaybook (?:(?:``|C\(|V\()(?P<quoted>[a-z]\w*)(?:``|\))|(?P<name>[a-z]+_\w+))|\brole (?P<role>[a-z0-9]+_\w+)"
)
_DOTTED = re.compile(r"(?<![\w./:@%-])(?:muster_)?job\.(?P<path>[a-z_]+(?:\.[a-z_]+)*)(?![\w(/]|\.[a-z])")
# Host variables and fields that the inventory plugins set, and a folder and unit names of ours.
_OTHERS = frozenset(
    (
        "muster_reachable",
        "muster_inventory_age_s",
        "muster_inventory_problems",
        "muster_local",
        "muster_probe",
        "muster_run",
    )
)
_DOCUMENTATION = "plugins/modules/training_job.py"


class Known(t.NamedTuple):
    """Names that exist."""

    playbooks: frozenset[str]
    roles: frozenset[str]
    plugins: frozenset[str]
    variables: frozenset[str]
    job: t.Mapping[str, t.Any]


@functools.cache
def read_known() -> Known:
    """Return the names of the project, each from its source: files, argument_specs and the documentation of the job."""
    names = project_files(ROOT)
    files = {pathlib.PurePosixPath(name) for name in names}
    plugins = {
        path.stem for path in files if path.parts[0] == "plugins" and path.suffix == ".py" and len(path.parts) == 3
    }
    documentation = (ROOT / _DOCUMENTATION).read_text().partition('DOCUMENTATION = r"""')[2].partition('"""')[0]
    specs = variables.read_specs().values()
    return Known(
        frozenset(
            path.stem
            for path in files
            if path.parent in (pathlib.PurePosixPath("playbooks"), pathlib.PurePosixPath("extensions/eda/rulebooks"))
        ),
        frozenset(path.parts[1] for path in files if path.parts[0] == "roles"),
        frozenset(plugins),
        frozenset(
            (
                *variables.find_users(),
                *variables.NOT_SET_BY_USERS,
                *variables.MEANINGS,
                *(name for spec in specs for name in spec),
                *_list_metrics(),
            )
        ),
        yaml.safe_load(documentation)["options"]["job"]["suboptions"],
    )


def _list_metrics() -> list[str]:
    """Return the names of the metrics that the collection gives."""
    return [
        *(f"{run_figures.PREFIX}{name}" for name in (*run_figures.FIGURES, *run_figures.LISTED_FIGURES)),
        *(*gpu_textfile.FIELDS.values(), *gpu_textfile.OTHERS),
        *(lease_metrics.USD_PER_HOUR, lease_metrics.DEADLINE, lease_metrics.PASS),
    ]


def find_missing_names(text: str, known: Known) -> t.Iterator[re.Match[str]]:
    """Yield what a text names as a playbook, role, plugin, variable or key of a job and what does not exist."""
    everything = known.playbooks | known.roles | known.plugins
    for match in _QUALIFIED.finditer(text):
        if match["name"] not in everything and match["name"] != "git":
            yield match
    for match in _NAMED.finditer(text):
        if (match["role"] or match["quoted"] or match["name"]) not in (
            known.roles if match["role"] else known.playbooks
        ):
            yield match
    for match in variables.NAME.finditer(text):
        if match[0] not in known.variables | everything | _OTHERS and not text.startswith(("*", "{", "_"), match.end()):
            yield match
    for match in _DOTTED.finditer(text):
        first, *rest = match["path"].split(".")
        if first not in known.job or not _is_key(known.job[first], rest):
            yield match


def _is_key(option: t.Mapping[str, t.Any], rest: t.Sequence[str]) -> bool:
    for part in rest:
        if "suboptions" not in option:
            # A dictionary of free keys, such as env.
            return option.get("type") in ("dict", "raw")
        if part not in option["suboptions"]:
            return False
        option = option["suboptions"][part]
    return True


def find_places(root: pathlib.Path = ROOT) -> list[words.Hit]:
    """Return each place of a message, guide or comment for users that names what does not exist."""
    known = read_known()
    hits = set()
    for name in words.list_texts(root):
        if name.startswith(("tools/", "changelogs/", "examples/")):
            continue
        passages = (
            words.read_strings((root / name).read_text()) if name.endswith(".py") else words.read_passages(root, name)
        )
        for line, text in passages:
            if " " not in text:
                continue  # a name of the code, no sentence
            for match in find_missing_names(text, known):
                hits.add(words.Hit(name, line + text.count("\n", 0, match.start()), match[0]))
    return sorted(hits, key=lambda hit: (hit.file, hit.line, hit.word))


def main() -> int:
    """Print every place; the exit status is 1 where there is one."""
    hits = find_places()
    for hit in hits:
        print(hit)
    return 1 if hits else 0


if __name__ == "__main__":
    sys.exit(main())
