# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The timer that frees a registry's space: its units as systemd reads them, and what they run by the real registry."""

from __future__ import annotations

import configparser
import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import typing as t
import urllib.request

import pytest
import yaml

from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError
from ansible_collections.muster.training.plugins.module_utils._model.service import parse_services
from ansible_collections.muster.training.tests.e2e.service_world import free_port
from ansible_collections.muster.training.tests.support import choice_programs, registry_program
from ansible_collections.muster.training.tests.support.run_inventory import environment

ROLE: t.Final = pathlib.Path(__file__).parents[4] / "roles" / "registry"
ENTRY: t.Final = {"name": "images", "kind": "registry", "mode": "deploy", "deploy": {"host": "a", "collect": "weekly"}}
MANIFEST: t.Final = "application/vnd.oci.image.manifest.v1+json"


def render(folder: pathlib.Path) -> dict[str, configparser.RawConfigParser]:
    """Write the units as the role does, under the names that systemd wants; return them as they are read."""
    tasks = [
        {"ansible.builtin.template": {"src": str(ROLE / f"templates/collect.{kind}.j2"),
                                      "dest": str(folder / f"muster-images-collect.{kind}")}}
        for kind in ("service", "timer")
    ]  # fmt: skip
    play = {"hosts": "localhost", "gather_facts": False, "vars_files": [str(ROLE / "vars" / "main.yml")]}
    values = {"registry_service": ENTRY, "ansible_python_interpreter": sys.executable}
    (folder / "play.yml").write_text(yaml.safe_dump([{**play, "vars": values, "tasks": tasks}]))
    program = pathlib.Path(sys.executable).parent / "ansible-playbook"
    argv = [os.fspath(program), "-i", "localhost,", "-c", "local", "play.yml"]
    done = subprocess.run(argv, cwd=folder, env=environment(folder), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found = {}
    for kind in ("service", "timer"):
        found[kind] = configparser.RawConfigParser(strict=True)
        found[kind].optionxform = str  # type: ignore[assignment,method-assign]
        found[kind].read(folder / f"muster-images-collect.{kind}")
    return found


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="needs systemd-analyze")
def test_the_units_as_systemd_reads_them(tmp_path: pathlib.Path) -> None:
    units = render(tmp_path)
    calendar = units["timer"]["Timer"]["OnCalendar"]
    done = subprocess.run(["systemd-analyze", "calendar", calendar], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert units["service"]["Unit"]["Conflicts"] == "muster-images.service", "it is stopped while space is freed"
    assert "start --no-block muster-images.service" in units["service"]["Service"]["ExecStopPost"]
    service = units["service"]["Service"]
    assert (service["User"], service["StateDirectory"]) == ("muster-images", "muster-images"), "those of the registry"


def push(registry: registry_program.RealRegistry, tag: str, text: bytes) -> str:
    """Push an image of one layer; return the digest of its manifest."""

    def send(method: str, path: str, body: bytes, kind: str) -> t.Any:
        url = path if path.startswith("http") else f"{registry.url}{path}"
        asked = urllib.request.Request(url, body, {"Content-Type": kind}, method=method)
        return urllib.request.urlopen(asked, timeout=30)

    blobs = []
    for blob in (json.dumps({"architecture": "amd64", "tag": tag}).encode(), text):
        digest = f"sha256:{hashlib.sha256(blob).hexdigest()}"
        place = send("POST", "/v2/team/train/blobs/uploads/", b"", "x/y").headers["Location"]
        send("PUT", f"{place}{'&' if '?' in place else '?'}digest={digest}", blob, "application/octet-stream")
        blobs.append({"digest": digest, "size": len(blob)})
    config = {**blobs[0], "mediaType": "application/vnd.oci.image.config.v1+json"}
    layer = {**blobs[1], "mediaType": "application/vnd.oci.image.layer.v1.tar"}
    manifest = json.dumps({"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": [layer]}).encode()
    send("PUT", f"/v2/team/train/manifests/{tag}", manifest, MANIFEST)
    return f"sha256:{hashlib.sha256(manifest).hexdigest()}"


def test_what_the_unit_runs_frees_deleted_images_and_keeps_the_others(tmp_path: pathlib.Path) -> None:
    """An image whose tag was moved away stays: runs name it by its digest."""
    program, port = choice_programs.find("registry"), free_port()
    assert program is not None, "no registry in MUSTER_LAB_BIN or the lab's cache"
    folder = tmp_path / "registry"
    with registry_program.running(folder, port, tls=False, login=False) as registry:
        gone, moved = push(registry, "gone", b"a" * 100_000), push(registry, "kept", b"b" * 100_000)
        kept = push(registry, "kept", b"c" * 100_000)
        asked = urllib.request.Request(f"{registry.url}/v2/team/train/manifests/{gone}", method="DELETE")
        urllib.request.urlopen(asked, timeout=30)
    units = render(tmp_path)
    words = units["service"]["Service"]["ExecStart"].split()[1:]
    assert words[-1] == "/run/credentials/muster-images-collect.service/registry.yml"
    before = sum(place.stat().st_size for place in folder.rglob("data") if place.is_file())
    done = subprocess.run([program, *words[:-1], folder / "config.yml"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    after = sum(place.stat().st_size for place in folder.rglob("data") if place.is_file())
    assert 100_000 <= before - after < 102_000
    with registry_program.running(folder, port, tls=False, login=False) as registry:
        for digest in (moved, kept):
            asked = urllib.request.Request(
                f"{registry.url}/v2/team/train/manifests/{digest}", headers={"Accept": MANIFEST}
            )
            found = json.loads(urllib.request.urlopen(asked, timeout=30).read())
            blob = found["layers"][0]["digest"]
            assert (
                len(urllib.request.urlopen(f"{registry.url}/v2/team/train/blobs/{blob}", timeout=30).read()) == 100_000
            )


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"deploy": {"host": "a", "collect": "hourly"}}, "deploy.collect"),
        ({"deploy": {"namespace": "a", "collect": "weekly"}}, "deploy.collect: is for services on hosts only"),
        ({"kind": "secrets"}, "deploy.collect: is for kind: registry"),
    ],
)
def test_an_entry_that_is_refused(changes: dict[str, t.Any], words: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_services([{**ENTRY, **changes}])
    assert words in str(caught.value)
