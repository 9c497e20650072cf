# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The versions of an interpreter's packages are read as it would import them, without importing them."""

from __future__ import annotations

import pathlib
import platform

import pytest

from ansible_collections.muster.training.plugins.module_utils._node.versions import read_versions


def test_the_first_package_on_the_path_counts(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for place, names in (("a", ["torch-2.9.0", "nvidia_nccl_cu12-2.27.5", "torchvision-1.0"]), ("b", ["torch-2.1.0"])):
        for name in names:
            (tmp_path / place / f"{name}.dist-info").mkdir(parents=True)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path / 'a'}:{tmp_path / 'b'}")
    assert read_versions() == {"python": platform.python_version(), "torch": "2.9.0", "nccl": "2.27.5"}


def test_an_interpreter_that_does_not_run_has_no_versions(tmp_path: pathlib.Path) -> None:
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho not json\n")
    broken.chmod(0o755)
    assert read_versions(str(broken)) == {} and read_versions(str(tmp_path / "none")) == {}
