# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pack the reaper's program into one zip file that Python runs modules from: ``pack_reaper.py PLUGINS DEST``.

The same sources always give the same bytes, so that a second installation changes nothing.
"""

from __future__ import annotations

import os
import pathlib
import sys
import zipfile

_WORKFLOWS = (
    *(
        f"node_pool/{name}"
        for name in (
            *("reaper_main", "absent", "absent_result", "present", "accounts", "run_states", "join_tokens"),
            "lease_metrics",
            "gone_runs",
        )
    ),
    *(
        "node_pool/run_status_kubernetes",
        "k3s_node/tokens",
        "shared/state_dir",
        "shared/state_lock",
        "shared/run_record",
        "shared/open_ledger",
        "shared/parent_process",
        "shared/cluster_identity",
        "shared/kube_connection",
    ),
)
PARTS = (
    "module_utils/_model",
    "module_utils/_http",
    "module_utils/_secrets",
    *(f"module_utils/_node/{name}.py" for name in ("files", "processes")),
    "plugin_utils/_kube",
    "plugin_utils/_providers",
    "plugin_utils/_provision",
    *(f"plugin_utils/_workflows/{name}.py" for name in _WORKFLOWS),
)
_TOP = "ansible_collections/muster/training/plugins"
_WHEN = (2026, 1, 1, 0, 0, 0)


def pack(plugins: pathlib.Path, dest: pathlib.Path) -> bool:
    """Write the zip file unless it is there with the same content; return whether it was written."""
    files = sorted(path for part in PARTS for path in _sources(plugins / part))
    names = {path: f"{_TOP}/{path.relative_to(plugins).as_posix()}" for path in files}
    folders = {parent.as_posix() for name in names.values() for parent in pathlib.PurePosixPath(name).parents}
    dest.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = dest.with_name(f".{dest.name}.{os.getpid()}")
    with zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as archive:
        # Python finds packages without __init__.py in a zip file only by the entries of their folders.
        for folder in sorted(folders - {"."}):
            archive.writestr(zipfile.ZipInfo(f"{folder}/", _WHEN), b"")
        for path, name in names.items():
            entry = zipfile.ZipInfo(name, _WHEN)
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, path.read_bytes())
    if dest.exists() and dest.read_bytes() == temporary.read_bytes():
        temporary.unlink()
        return False
    temporary.replace(dest)
    return True


def _sources(place: pathlib.Path) -> list[pathlib.Path]:
    return [place] if place.suffix else sorted(place.rglob("*.py"))


if __name__ == "__main__":
    print("packed" if pack(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])) else "same")
