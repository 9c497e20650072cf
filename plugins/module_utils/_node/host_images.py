# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Images in the containerd of K3s on this node: which are there with which digest, and one more from an archive."""

# pylint: disable=ansible-bad-function  # on a node by itself, with no AnsibleModule around it
from __future__ import annotations

import os
import typing as t

from . import commands, files, host_k3s, placed_files

# Below K3s' own data, with which images and this record go.
RECORD = f"{host_k3s.DATA}/agent/muster-images.json"
# An image of tens of gigabytes is unpacked on its import.
_IMPORT_S = 1800
# The label by which kubelet never removes an image to free disk space.
_PINNED = "io.cri-containerd.pinned=pinned"


def find(request: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Return the digest of the image ``name`` in containerd, and what the record says of its import."""
    if not placed_files.place_of(host_k3s.RECORD).exists():
        return {"problem": "K3s is not installed by this collection", "fix": "Run the playbook cluster first"}
    name, architecture = request["name"], os.uname().machine
    return {"digest": _digests().get(name), "record": _read_record().get(name), "architecture": architecture}


def load(request: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Import the archive that was sent beside ``path``, and record its digest and that of the image ``name``."""
    part = placed_files.part_of(request["path"])
    try:
        found = files.sha256_of(part)
        if found != request["sha256"]:
            return {"problem": f"the archive arrived with the SHA-256 {found} and not {request['sha256']}"}
        before = _digests()
        commands.run(f"/{host_k3s.PROGRAM}", "ctr", "images", "import", str(part), limit_s=_IMPORT_S)
    finally:
        part.unlink(missing_ok=True)
    after = _digests()
    if request["name"] not in after:
        new = ", ".join(sorted(set(after) - set(before))) or "none that was not there"
        return {"problem": f"the archive does not hold the image {request['name']} (but {new})"}
    commands.run(f"/{host_k3s.PROGRAM}", "ctr", "images", "label", request["name"], _PINNED)
    entry = {"archive": request["sha256"], "digest": after[request["name"]]}
    files.write_json(placed_files.place_of(RECORD), {**_read_record(), request["name"]: entry})
    return {"digest": entry["digest"]}


def _digests() -> dict[str, str]:
    """Return the digests of the images by their names, from the columns REF TYPE DIGEST."""
    lines = commands.run(f"/{host_k3s.PROGRAM}", "ctr", "images", "list").splitlines()[1:]
    return {words[0]: words[2] for words in map(str.split, lines) if len(words) > 2}


def _read_record() -> dict[str, t.Any]:
    record = files.read_json(placed_files.place_of(RECORD))
    return record if isinstance(record, dict) else {}
