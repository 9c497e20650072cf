# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The archive of a job's code: the same bytes for the same files."""

from __future__ import annotations

import io
import tarfile

from ansible_collections.muster.training.plugins.plugin_utils._kube.jobs import code_archive


def test_an_archive_does_not_tell_when_or_in_which_order_it_was_packed() -> None:
    files = [("code/b", 0o600, b"2"), ("code/a/ä.py", 0o700, b"1" * 200_000)]
    packed = code_archive.pack(files)
    assert packed == code_archive.pack(list(reversed(files))) and len(packed) < 2000
    with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
        assert [(item.name, item.mode, item.mtime, item.uid) for item in tar] == [
            ("code/a/ä.py", 0o700, 0, 0),
            ("code/b", 0o600, 0, 0),
        ]
