# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Build the documentation site into build/docs/html: ``python -m tools.docs``.

antsibull-docs writes pages for plugins and roles and takes the guides of docs/docsite; Sphinx makes HTML of them.
A warning of either fails the build, save those about links into Ansible's own documentation: its list of targets is
not fetched, so no network is used.
"""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import subprocess
import sys

from .tree import COLLECTION, ROOT

CONF = f"""\
project = {COLLECTION!r}
copyright = "muster.training contributors"
extensions = ["sphinx.ext.autodoc", "sphinx_antsibull_ext"]
pygments_style = "ansible"
html_theme = "sphinx_ansible_theme"
html_title = {COLLECTION!r}
html_show_sphinx = False
display_version = False
"""


# A reference into Ansible's own documentation, which has no target here.
FOREIGN = re.compile(rf"undefined label: '(?!ansible_collections\.{re.escape(COLLECTION)}\.)")


def complaints(warnings: str) -> list[str]:
    """The lines of Sphinx's list of warnings that count."""
    return [line for line in warnings.splitlines() if line.strip() and not FOREIGN.search(line)]


def link_guides(source: pathlib.Path) -> None:
    """Turn the links between guides, which GitHub follows as they stand, into links between the pages of the site."""
    for page in source.rglob("*.rst"):
        text = page.read_text(encoding="utf-8")
        linked = re.sub(r"`([^`<]+?)\s+<(\w+)\.rst>`__?", r":doc:`\1 <\2>`", text)
        if linked != text:
            page.write_text(linked, encoding="utf-8")


def build(target: pathlib.Path, tools: pathlib.Path) -> int:
    """Write the pages, make HTML of them, show what is wrong; 0 when nothing is."""
    source, listing = target / "rst", target / "warnings.txt"
    source.mkdir(parents=True)
    (source / "conf.py").write_text(CONF, encoding="utf-8")
    pages = [
        os.fspath(tools / "antsibull-docs"),
        "collection",
        "--use-current",
        "--squash-hierarchy",
        "--fail-on-error",
    ]
    html = [os.fspath(tools / "sphinx-build"), "-M", "html", os.fspath(source), os.fspath(target), "-q"]
    html += ["--warning-file", os.fspath(listing)]
    # antsibull-docs calls Ansible's commands by name.
    path = os.pathsep.join([os.fspath(tools), os.environ.get("PATH", os.defpath)])
    for argv in ([*pages, "--dest-dir", os.fspath(source), COLLECTION], html):
        if argv is html:
            link_guides(source)
        status = subprocess.run(argv, env={**os.environ, "PATH": path}, check=False).returncode
        if status:
            return status
    found = complaints(listing.read_text(encoding="utf-8"))
    print("\n".join(found), end="\n" if found else "", file=sys.stderr)
    return int(bool(found))


def main(arguments: list[str]) -> int:
    """Build the site; the exit status of the first tool that fails, 1 for warnings, else 0."""
    if arguments:
        print("docs takes no arguments", file=sys.stderr)
        return 2
    target = ROOT / "build" / "docs"
    shutil.rmtree(target, ignore_errors=True)
    status = build(target, pathlib.Path(sys.executable).parent)
    if not status:
        print((target / "html" / "index.html").relative_to(ROOT))
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
