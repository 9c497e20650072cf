# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The providers of machines are the folders that declare one: on disk, inside the reaper's zip file, in the documentation."""

from __future__ import annotations

import json
import pathlib
import shutil
import subprocess
import sys

import pytest
import yaml

from ansible_collections.muster.training.plugins.doc_fragments import _providers as fragment
from ansible_collections.muster.training.plugins.plugin_utils._providers import registry
from ansible_collections.muster.training.plugins.plugin_utils._workflows.node_pool import accounts

FOLDER = pathlib.Path(registry.__file__).parent
ROOT = FOLDER.resolve().parents[2]
PACK = ROOT / "roles" / "teardown" / "files" / "pack_reaper.py"
LIST = (
    "import json; from ansible_collections.muster.training.plugins.plugin_utils._providers import registry; "
    "print(json.dumps([registry.find_folders(), sorted(registry.find_providers())]))"
)
NEW = (
    "from ..base import ProviderDeclaration\n\n"
    "PROVIDER = ProviderDeclaration('moon', lambda connection, name: None, 'MOON_API_KEY')\n"
)


def pack(tmp_path: pathlib.Path, extra: dict[str, str]) -> pathlib.Path:
    """Return the reaper's zip file, made of a copy of the plugins with some more files."""
    plugins = FOLDER.resolve().parents[1]
    if extra:
        plugins = pathlib.Path(shutil.copytree(plugins, tmp_path / "plugins"))
    for name, text in extra.items():
        (plugins / name).parent.mkdir()
        (plugins / name).write_text(text)
    archive = tmp_path / "reaper.zip"
    subprocess.run([sys.executable, str(PACK), str(plugins), str(archive)], check=True, capture_output=True)
    return archive


def documented() -> list[str]:
    options = yaml.safe_load(fragment.ModuleDocFragment.DOCUMENTATION)["options"]
    return list(options["providers"]["suboptions"]["name"]["choices"])


def test_every_folder_with_a_declaration_is_a_provider() -> None:
    folders = {path.parent.name for path in FOLDER.glob("*/provision.py") if "\nPROVIDER = " in path.read_text()}
    found = registry.find_providers()
    assert {item.open_account.__module__.split(".")[-2] for item in found.values()} == folders
    assert set(found) == {"lambda", "runpod", "vastai", "shadeform"}
    assert [item.name for item in found.values()] == list(found)


def test_what_is_no_provider_of_machines_is_left_out() -> None:
    assert "tailscale" in registry.find_folders() and "tailscale" not in registry.find_providers()
    assert "coreweave" not in registry.find_folders()


def test_the_documentation_lists_the_providers_that_the_folders_declare() -> None:
    assert documented() == list(accounts.NAMES) == [*registry.find_providers(), "tailscale"]


@pytest.mark.parametrize("name", ["lambda", "runpod", "vastai", "shadeform"])
def test_a_declaration_names_the_source_of_its_credential(name: str) -> None:
    declaration = registry.find_providers()[name]
    source = declaration.secret_source("providers[0]")
    assert (source.option, source.variables) == ("providers[0].api_token", (declaration.variable,))


@pytest.mark.parametrize("extra", [False, True])
def test_the_reapers_zip_file_has_the_same_providers(tmp_path: pathlib.Path, extra: bool) -> None:
    """Also one whose folder was added: no other file knows it."""
    archive = pack(tmp_path, {"plugin_utils/_providers/moon/provision.py": NEW} if extra else {})
    done = subprocess.run(
        [sys.executable, "-I", "-c", f"import sys; sys.path.insert(0, {str(archive)!r}); {LIST}"],
        capture_output=True,
        text=True,
        check=True,
    )
    folders, names = json.loads(done.stdout)
    assert folders == sorted([*registry.find_folders(), *(["moon"] if extra else [])])
    assert names == sorted([*registry.find_providers(), *(["moon"] if extra else [])])


def test_the_collection_loader_finds_the_same_providers(tmp_path: pathlib.Path) -> None:
    """As a module of ansible-core does: by its own finder, from a collections path."""
    place = tmp_path / "ansible_collections" / "muster"
    place.mkdir(parents=True)
    (place / "training").symlink_to(ROOT)
    program = (
        "from ansible.utils.collection_loader._collection_finder import _AnsibleCollectionFinder as Finder; "
        f"Finder(paths=[{str(tmp_path)!r}])._install(); {LIST}"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert json.loads(done.stdout) == [registry.find_folders(), sorted(registry.find_providers())]
