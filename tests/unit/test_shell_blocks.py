# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every shell block of the README and the guides: bash can read it, and what it calls and sets exists."""

from __future__ import annotations

import importlib.util
import json
import pathlib
import re
import shlex
import subprocess

import pytest
import yaml

from ansible_collections.muster.training.tests.support.shell_blocks import PAGES, ROOT, read_blocks
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


def test_links_between_pages_lead_somewhere() -> None:
    for page in PAGES:
        text = page.read_text()
        links = (
            re.findall(r"`[^`<]+ <([^>:#]+?)(?:#[^>]*)?>`__?", text)
            if page.suffix == ".rst"
            else re.findall(r"\]\(([^):#]+)\)", text)
        )
        for link in links:
            assert (page.parent / link).exists(), f"{page.name}: {link}"
