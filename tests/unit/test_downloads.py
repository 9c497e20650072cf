# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nothing is downloaded without a digest that is in the list of downloads, in a name, or held by the lock file."""

from __future__ import annotations

import pathlib
import re
import typing as t

import yaml

from ansible_collections.muster.training.plugins.plugin_utils._hosts import downloads

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Modules of Ansible that fetch, and words of shell commands that do.
FETCHING = ("get_url", "uri", "unarchive", "git", "apt_repository", "apt_key", "rpm_key", "dnf", "yum")
FETCHING_WORDS = re.compile(
    r"\b(?:(?:curl|wget) |helm (?:install|upgrade|pull) |kubectl apply -f https?:|(?:docker|podman|crictl) pull )"
)
# Asks the cloud's metadata service for a few words and keeps nothing of them.
ASKING = {"plugins/module_utils/_node/host_notice.py"}
# Each holds what it fetches against a digest; the tests of the same names show it.
HOLDING = {
    "plugins/plugin_utils/_workflows/release_file.py",
    "plugins/plugin_utils/_workflows/release_bundle/run.py",
    "plugins/plugin_utils/_services/registry/client.py",
    "plugins/module_utils/_node/placed_files.py",
}
OPENING = re.compile(r"\burlopen\(|\bbuild_opener\(|\burlretrieve\(")


def find_downloads(text: str) -> list[str]:
    """Return what a file of tasks or objects fetches without a digest."""
    found = []

    def look(value: t.Any) -> None:
        if isinstance(value, dict):
            for key, item in value.items():
                name = str(key).removeprefix("ansible.builtin.")
                if name in FETCHING and isinstance(item, (dict, str)):
                    found.append(name)
                if key == "image" and isinstance(item, str) and "{{" not in item and "@sha256:" not in item:
                    found.append(f"image {item}")
                if isinstance(item, str) and FETCHING_WORDS.search(item) and name in ("shell", "command", "cmd", "raw"):
                    found.append(f"{name}: {item}")
                look(item)
        elif isinstance(value, list):
            for item in value:
                look(item)

    for document in yaml.safe_load_all(text):
        look(document)
    return found


def test_no_task_and_no_object_fetches_by_itself() -> None:
    places = [*ROOT.glob("roles/*/*/*.yml"), *ROOT.glob("playbooks/*.yml")]
    assert len(places) > 60
    found = {
        str(place.relative_to(ROOT)): names
        for place in places
        # The documentation of options has examples.
        if place.name != "argument_specs.yml" and (names := find_downloads(place.read_text()))
    }
    # Packages come from repositories whose keys are held by their fingerprints, and what came is on record.
    # The role shared_filesystem works on a host that need not be in the play, and keeps a record of its own.
    installs = ("roles/device_packages/", "roles/shared_filesystem/tasks/ensure_")
    # Asks ports of the machine itself, and unpacks what release_file fetched and held against its digest.
    installs = (*installs, "roles/exporters/tasks/")
    installs = (*installs, "roles/filesystem_client/tasks/install_juicefs")
    # Unpacks what cluster_backup placed, which was sealed.
    installs = (*installs, "roles/k3s/tasks/put_control_plane.yml")
    assert {name for name in found if not name.startswith(installs)} == set()


def test_no_program_of_a_role_fetches() -> None:
    places = [place for place in ROOT.glob("roles/*/[ft]*/*") if place.suffix in (".sh", ".py", ".j2")]
    assert places and [place.name for place in places if FETCHING_WORDS.search(place.read_text())] == []


def test_each_plugin_that_opens_a_url_is_one_that_holds_digests() -> None:
    opening = {
        str(place.relative_to(ROOT))
        for place in ROOT.glob("plugins/**/*.py")
        if OPENING.search(place.read_text()) and "_http" not in place.parts
    }
    assert opening == HOLDING | ASKING


def test_the_search_finds_what_it_looks_for() -> None:
    tasks = """
- ansible.builtin.get_url: {url: https://example.com/x, dest: /x}
- ansible.builtin.shell: {cmd: "curl -sfL https://get.k3s.io | sh -"}
- block: [{ansible.builtin.command: kubectl apply -f https://example.com/all.yaml}]
- muster.training.kube_apply: {objects: [{spec: {containers: [{image: busybox}, {image: "{{ x }}"}, {image: a@sha256:0}]}}]}
"""
    assert [text.split(":")[0].split(" ")[0] for text in find_downloads(tasks)] == [
        "get_url",
        "cmd",
        "command",
        "image",
    ]


def test_each_entry_is_fetched_over_tls_by_its_version_and_has_a_digest_or_none() -> None:
    for item in downloads.entries():
        assert item.url.startswith("https://") and item.url.endswith(f"/{item.file}")
        assert item.version.replace("+", "%2B") in item.url
        assert item.sha256 == "" or re.fullmatch("[0-9a-f]{64}", item.sha256)
    assert len({item.key for item in downloads.entries()}) == len(downloads.entries())
    assert len({downloads.bundle_path(item) for item in downloads.entries()}) == len(downloads.entries())
