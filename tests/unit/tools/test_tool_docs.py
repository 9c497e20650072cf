# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The documentation site: what counts as wrong, and in which order the tools run."""

from __future__ import annotations

import pathlib

import pytest

from ansible_collections.muster.training.tools import docs


def test_links_into_the_documentation_of_ansible_are_forgiven() -> None:
    lines = [
        "a.rst:11: WARNING: undefined label: 'ansible_configuration_settings' [ref.ref]",
        "a.rst:12: WARNING: undefined label: 'ansible_collections.muster.training.nope_module' [ref.ref]",
        "a.rst:13: ERROR: Unknown directive type",
        "",
    ]
    assert docs.complaints("\n".join(lines)) == lines[1:3]


@pytest.mark.parametrize(("warning", "pages", "status"), [("", 0, 0), ("x: WARNING: y", 0, 1), ("", 3, 3)])
def test_the_build_fails_on_warnings_and_failures(
    tmp_path: pathlib.Path, capfd: pytest.CaptureFixture[str], warning: str, pages: int, status: int
) -> None:
    scripts = {"antsibull-docs": f"exit {pages}", "sphinx-build": f"printf '{warning}' > \"$7\""}
    for name, script in scripts.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        (tmp_path / name).chmod(0o755)
    assert docs.build(tmp_path / "site", tmp_path) == status
    assert warning in capfd.readouterr().err


def test_links_between_guides_are_links_of_the_site(tmp_path: pathlib.Path) -> None:
    page = tmp_path / "docsite" / "guide_job.rst"
    page.parent.mkdir()
    page.write_text("see `the guide to\nhosts <guide_hosts.rst>`_, `a site <https://x.org/a.rst>`_\n")
    docs.link_guides(tmp_path)
    assert page.read_text() == "see :doc:`the guide to\nhosts <guide_hosts>`, `a site <https://x.org/a.rst>`_\n"
