# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every shell block of the README and the guides: bash can read it, and what it calls and sets exists."""

from __future__ import annotations

import ast
import importlib.util
import json
import pathlib
import re
import shlex
import subprocess
import typing as t

import pytest
import yaml

from ansible_collections.muster.training.tests.support.shell_blocks import PAGES, PLACEHOLDERS, ROOT, read_blocks
from ansible_collections.muster.training.tools import variables

# Commands that are not the project's own.
FOREIGN = {
    "ssh-keygen",
    "ssh-copy-id",
    "ssh-keyscan",
    "ansible",
    "kubectl",
    "bao",
    "git",
    "export",
    "cd",
    "pip",
    "source",
    ".",
    "cat",
    "sed",
    "torchrun",
    "ansible-inventory",
}
# What placeholders stand for, each once: any other word of a block is run as it stands.
FILLED = {
    "run": {"char-lm-1a2b3c4d", "mlp-1a2b3c4d", "RUN"},
    "first host": {"192.0.2.11"},
    "second host": {"192.0.2.12"},
    "address of OpenBao": {"10.0.0.5:8200"},
    "store": {"https://minio.example.com:9000"},
    "lost host": {"gpu-3"},
    "key": {"..."},
}
SPECS = {name for options in variables.read_specs().values() for name in options}
KNOWN = {*variables.find_users(), *variables.MEANINGS, *SPECS}


def commands(block: str) -> list[list[str]]:
    """Return the words of each command, without comments; continued lines are joined."""
    text = block.replace("\\\n", " ")
    lines = [shlex.split(line, comments=True) for line in text.splitlines()]
    return [line for line in lines if line]


@pytest.mark.parametrize("block", read_blocks().values(), ids=read_blocks())
def test_bash_can_read_it(block: str) -> None:
    done = subprocess.run(["bash", "-n"], input=block, text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("block", read_blocks().values(), ids=read_blocks())
def test_what_it_calls_exists(block: str) -> None:
    for words in commands(block):
        words = [word for word in words if not re.fullmatch(r"[A-Z_]+=.*", word)]
        if not words:
            continue
        name = pathlib.PurePath(words[0]).name
        if name == "ansible-playbook":
            check_playbook(words)
        elif name == "make":
            targets = re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
            assert words[1] in targets, words
        elif name.startswith("python"):
            modules = [words[index + 1] for index, word in enumerate(words) if word == "-m"]
            for module in modules:
                path = ROOT / f"{module.replace('.', '/')}"
                assert path.with_suffix(".py").is_file() or path.is_dir() or importlib.util.find_spec(module), words
        elif name == "ansible-galaxy" or name == "ansible-doc":
            assert (ROOT / ".git").exists()
        else:
            assert name in FOREIGN, f"{words}: add it to FOREIGN, or correct it"


def read_typed() -> dict[str, list[str]]:
    """Return by module the blocks that a test types, as its ``BLOCKS`` lists them."""
    found = {}
    for place in sorted(ROOT.glob("tests/*/test_shell_blocks*.py")):
        for item in ast.parse(place.read_text()).body:
            if isinstance(item, ast.Assign) and ast.unparse(item.targets[0]) == "BLOCKS":
                found[f"{place.parent.name}/{place.stem}"] = list(ast.literal_eval(item.value))
    return found


def test_each_block_is_typed_by_one_test() -> None:
    """No block is left out, and none is typed in two places."""
    typed = [name for names in read_typed().values() for name in names]
    assert sorted(typed) == sorted(read_blocks())


@pytest.mark.parametrize("module", read_typed())
def test_a_module_types_what_it_lists(module: str) -> None:
    """Its blocks come from its list alone: as parameters of a test that types each, or one by one."""
    text = (ROOT / "tests" / f"{module}.py").read_text()
    number = len(read_typed()[module])
    one_by_one = {f"BLOCKS[{index}]" for index in range(number)}
    assert 'parametrize("name", BLOCKS)' in text or all(place in text for place in one_by_one), module
    assert "reader.run(" in text


def test_placeholders_are_the_few_that_a_page_cannot_know() -> None:
    text = "".join(read_blocks().values())
    assert {name: set(re.findall(pattern, text)) for name, pattern in PLACEHOLDERS.items()} == FILLED


def check_playbook(words: list[str]) -> None:
    playbooks = [word for word in words if word.startswith("muster.training.")]
    for playbook in playbooks:
        assert (ROOT / "playbooks" / f"{playbook.removeprefix('muster.training.')}.yml").is_file(), words
    for index, word in enumerate(words):
        if word in ("-e", "--extra-vars"):
            check_setting(words[index + 1])


def check_setting(setting: str) -> None:
    """Check that the variables of ``-e`` exist; a file is the reader's own."""
    if setting.startswith("@"):
        return
    value = (
        yaml.safe_load(setting)
        if setting.startswith("{")
        else dict([part.split("=", 1) for part in shlex.split(setting)])
    )
    unknown = set(value) - KNOWN
    assert not unknown, f"{setting}: {sorted(unknown)}"
    assert json.dumps(value)


def test_the_check_notices_what_is_wrong() -> None:
    with pytest.raises(AssertionError):
        test_what_it_calls_exists("ansible-playbook -i x muster.training.nothing")
    with pytest.raises(AssertionError):
        test_what_it_calls_exists("ansible-playbook -i x muster.training.train -e muster_nothing=1")
    with pytest.raises(AssertionError):
        test_what_it_calls_exists("make nothing")


def test_guides_have_no_roles_of_sphinx_that_github_shows_as_text() -> None:
    for page in PAGES:
        assert not re.search(r":(?:ref|doc|ansplugin|ansopt):`", page.read_text()), page.name


def headings(page: pathlib.Path) -> set[str]:
    """Return the anchors that GitHub makes of a page's headings."""
    text = page.read_text()
    pattern = r"^#+ (.+)$" if page.suffix == ".md" else r"^(\S.*)\n([=\-~^])\2+$"
    found = [match[1] for match in re.finditer(pattern, text, re.MULTILINE)]
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in found}


def broken_links(page: pathlib.Path, text: str) -> list[str]:
    """Return the links to files and headings of the repository that GitHub would lead nowhere."""
    pattern = r"`[^`<]+\s<([^>:]+)>`__?" if page.suffix == ".rst" else r"\]\(([^):]+)\)"
    broken = []
    for link in re.findall(pattern, text):
        place, _mark, anchor = link.partition("#")
        target = page.parent / place if place else page
        if not target.exists() or (anchor and anchor not in headings(target)):
            broken.append(link)
    return broken


DOCUMENTS = sorted(
    {*PAGES, *(ROOT / name for name in ("CONTRIBUTING.md", "CHANGELOG.md")), *ROOT.glob("[eit]*/**/*.md")}
)


@pytest.mark.parametrize("page", DOCUMENTS, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_work_on_github(page: pathlib.Path) -> None:
    assert not broken_links(page, page.read_text())


def test_a_broken_link_is_noticed() -> None:
    readme, guide = ROOT / "README.md", ROOT / "docs" / "docsite" / "rst" / "guide_job.rst"
    text = "[a](docs/nothing.rst) [b](#install) [c](#nothing) [d](https://example.com/x) [e](CONTRIBUTING.md#nothing)"
    assert broken_links(readme, text) == ["docs/nothing.rst", "#nothing", "CONTRIBUTING.md#nothing"]
    text = "`a <guide_hosts.rst>`_ `b <guide_nothing.rst>`__ `c <#presets>`_ `d <guide_hosts.rst#nothing>`_"
    assert broken_links(guide, text) == ["guide_nothing.rst", "guide_hosts.rst#nothing"]


def read_examples(role: pathlib.Path) -> list[t.Any]:
    """Return the plays of the examples in a role's page."""
    blocks = re.findall(r"^```yaml\n(.*?)^```", (role / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    return [play for block in blocks for play in yaml.safe_load(block)]


@pytest.mark.parametrize("role", sorted(ROOT.glob("roles/*")), ids=lambda role: str(role.name))
def test_each_role_has_an_example_whose_variables_exist(role: pathlib.Path) -> None:
    calls = []
    for play in read_examples(role):
        calls += [({**use, **use.get("vars", {})}, use["role"]) for use in play.get("roles", [])]
        included = [(task.get("vars", {}), task.get("ansible.builtin.include_role")) for task in play.get("tasks", [])]
        calls += [(values, use["name"]) for values, use in included if use]
    own = [values for values, name in calls if name == f"muster.training.{role.name}"]
    unknown = {key for values in own for key in values} - KNOWN - {"role", "vars", "when"}
    assert own and not unknown, unknown
