# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Releases of Prometheus' programs as their project packs them, from the programs of the lab."""

from __future__ import annotations

import pathlib
import tarfile

from ansible_collections.muster.training.plugins.plugin_utils._hosts import downloads
from ansible_collections.muster.training.tests.support import choice_programs

NAMES = {"prometheus": "prometheus", "alertmanager": "alertmanager", "node-exporter": "node_exporter"}


def missing() -> str:
    """Return the names of the programs that are not at hand, empty where all are."""
    return ", ".join(program for program in NAMES.values() if choice_programs.find(program) is None)


def release(folder: pathlib.Path) -> pathlib.Path:
    """Make a folder with the archives of the default versions; return it."""
    place = folder / "prometheus-releases"
    place.mkdir()
    for name, program in NAMES.items():
        download = downloads.find(name, downloads.default_version(name), "amd64")
        with tarfile.open(place / download.file, "w:gz", compresslevel=1) as target:
            target.add(str(choice_programs.find(program)), f"{download.file.removesuffix('.tar.gz')}/{program}")
    return place
