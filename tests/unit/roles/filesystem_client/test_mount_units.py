# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The mount units of nodes, read by systemd itself; tests/lab/test_lab_filesystems.py has machines that mount by them."""

from __future__ import annotations

import configparser
import dataclasses
import os
import pathlib
import shutil
import subprocess
import sys
import typing as t

import pytest
import yaml

from ansible_collections.muster.training.plugins.module_utils._model.service import parse_services
from ansible_collections.muster.training.plugins.plugin_utils._workflows.services import bind
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared.state_dir import StateHome
from ansible_collections.muster.training.tests.support.run_inventory import environment

ROLE = pathlib.Path(__file__).parents[4] / "roles" / "filesystem_client"
Dict = dict[str, t.Any]
SECRET: t.Final = "canary-of-a-share-0123"
# Nothing is deployed.
HOME: t.Final = StateHome({"path": "/nonexistent"}, "none")


def plan(provider: str, endpoint: str, **filesystem: t.Any) -> Dict:
    about = {"name": "nas", "kind": "shared_filesystem", "mode": "bind", "provider": provider, "endpoint": endpoint}
    entry = {**about, "filesystem": {"path": "/mnt/nas", "mount": True, **filesystem}}
    ((made,), _gone) = bind.plan_mounts([entry], [], HOME)
    return dataclasses.asdict(made)


def render(folder: pathlib.Path, item: Dict) -> pathlib.Path:
    """Write the unit as the role does, under the name that systemd wants; return it."""
    escape = ["systemd-escape", "--path", "--suffix=mount", item["path"]]
    name = subprocess.run(escape, capture_output=True, text=True, check=True).stdout.strip()
    task = {"ansible.builtin.template": {"src": str(ROLE / "templates" / "mount.j2"), "dest": str(folder / name)}}
    play = {"hosts": "localhost", "gather_facts": False, "vars_files": [str(ROLE / "vars" / "main.yml")]}
    values = {"__filesystem_client_item": item, "ansible_python_interpreter": sys.executable}
    (folder / "play.yml").write_text(yaml.safe_dump([{**play, "vars": values, "tasks": [task]}]))
    program = pathlib.Path(sys.executable).parent / "ansible-playbook"
    argv = [os.fspath(program), "-i", "localhost,", "-c", "local", "play.yml"]
    done = subprocess.run(argv, cwd=folder, env=environment(folder), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / name


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="needs systemd-analyze")
@pytest.mark.parametrize(
    ("provider", "endpoint", "more", "what", "words"),
    [
        ("nfs", "nfs://10.0.0.5/exports/data", {}, "10.0.0.5:/exports/data", ["hard", "nfsvers=4.2", "timeo=600"]),
        ("nfs", "nfs://[fd00::5]/a%b", {"path": "/mnt/my-nas"}, "[fd00::5]:/a%b", ["_netdev", "nofail"]),
        (
            "smb",
            "smb://files/share",
            {"options": "uid=1000,gid=1000"},
            "//files/share",
            ["vers=3.1.1", "uid=1000", "credentials=/etc/muster/filesystems/nas.credentials"],
        ),
    ],
)
def test_systemd_reads_the_unit(
    tmp_path: pathlib.Path, provider: str, endpoint: str, more: Dict, what: str, words: list[str]
) -> None:
    unit = render(tmp_path, plan(provider, endpoint, **more))
    verify = ["systemd-analyze", "verify", "--man=no", str(unit)]
    done = subprocess.run(verify, capture_output=True, text=True, check=False)
    about = done.stdout + done.stderr
    assert done.returncode == 0 and unit.name not in about, about
    found = configparser.ConfigParser(interpolation=None)
    found.read(unit)
    assert found["Mount"]["What"].replace("%%", "%") == what
    assert set(words) <= set(found["Mount"]["Options"].split(",")) and "soft" not in found["Mount"]["Options"]
    # A unit under another name than that of its path is not loaded.
    unit.write_text(unit.read_text().replace("Where=", "Where=/elsewhere"))
    done = subprocess.run(verify, capture_output=True, text=True, check=False)
    assert done.returncode != 0 or unit.name in done.stdout + done.stderr


def test_what_nodes_are_to_have() -> None:
    """By the entries that ask for it; one that is absent is taken away; others are the site's own."""
    entry: Dict = {"name": "nas", "kind": "shared_filesystem", "mode": "bind", "provider": "nfs"}
    entry |= {"endpoint": "nfs://10.0.0.5/data", "filesystem": {"path": "/mnt/nas"}}
    own = {**entry, "filesystem": {"path": "/mnt/nas", "mount": True}}
    assert bind.plan_mounts([entry], [], HOME) == ([], [])
    assert bind.plan_mounts([{**own, "state": "absent"}], [], HOME) == ([], ["nas"])
    ((made,), _gone) = bind.plan_mounts([own], [], HOME)
    assert made.source == "10.0.0.5:/data" and made.variables == {}
    (service,) = parse_services([own])
    assert bind.plan_mounts(None, [service.to_binding(None)], HOME) == ([made], []), "of a binding it is the same"
    share = {**own, "provider": "smb", "endpoint": "smb://h/x"}
    share["secret_ref"] = {"from": "env", "keys": {"password": "NAS_PASSWORD"}}
    ((made,), _gone) = bind.plan_mounts([share], [], HOME)
    assert made.variables == {"username": "SMB_USERNAME", "password": "NAS_PASSWORD"}


def test_what_mount_printed_has_its_fix(tmp_path: pathlib.Path) -> None:
    """The texts of mount.nfs and mount.cifs; of others the unit and the kernel's log are named."""
    said = {
        "mount error(13): Permission denied": "Correct the user and password of the share (secret_ref)",
        "mount error(2): No such file or directory": "Correct the export or share in endpoint",
        "mount.nfs: access denied by server while mounting 10.0.0.5:/x": "Let the server export it to this node's",
        "mount.nfs: No such device": "The kernel of the node has no such file system",
        "mount.nfs: Connection timed out": "Look at the server and at firewalls on the way to it",
        "mount: /mnt/nas: odd": "Look at its unit with systemctl status",
    }
    show = {"ansible.builtin.debug": {"msg": "{{ __filesystem_client_reason }} => {{ __filesystem_client_fix }}"}}
    tasks = [
        {**show, "vars": {"__filesystem_client_said": {"stdout_lines": ["Mounting …", text, "Unit failed"]}}}
        for text in said
    ]
    play = {"hosts": "localhost", "gather_facts": False, "vars_files": [str(ROLE / "vars" / "main.yml")]}
    (tmp_path / "play.yml").write_text(yaml.safe_dump([{**play, "tasks": tasks}]))
    program = pathlib.Path(sys.executable).parent / "ansible-playbook"
    argv = [os.fspath(program), "-i", "localhost,", "-c", "local", "play.yml"]
    done = subprocess.run(argv, cwd=tmp_path, env=environment(tmp_path), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    for text, fix in said.items():
        assert f"{text} => {fix}" in done.stdout


@pytest.mark.skipif(not shutil.which("systemd-escape"), reason="needs systemd-escape")
@pytest.mark.parametrize(
    ("path", "user", "words"),
    [
        ("/mnt/muster-test-nas", {"SMB_USERNAME": "train", "SMB_PASSWORD": SECRET}, ""),
        ("/mnt/muster-test-nas", {"SMB_USERNAME": "train"}, "Set SMB_USERNAME and SMB_PASSWORD for ansible-playbook"),
        ("/mnt/muster-test-nas", {"SMB_USERNAME": "a", "SMB_PASSWORD": f"{SECRET}\nuid=0"}, "one of more than a line"),
        ("/dev/shm", {}, "is mounted at /dev/shm already, and not by this role"),
    ],
    ids=["check mode", "no password", "two lines", "taken"],
)
def test_a_node_is_only_looked_at_in_check_mode(
    tmp_path: pathlib.Path, path: str, user: dict[str, str], words: str
) -> None:
    """What the role refuses before it writes, and a run that writes nothing, on this machine."""
    item = {**plan("smb", "smb://files/share"), "path": path}
    task = {"include_role": {"name": "muster.training.filesystem_client", "tasks_from": "mount"}}
    values = {"__filesystem_client_item": item, "ansible_python_interpreter": sys.executable, "ansible_become": False}
    play = {"hosts": "localhost", "gather_facts": False, "vars": values, "tasks": [task]}
    (tmp_path / "play.yml").write_text(yaml.safe_dump([play]))
    program = pathlib.Path(sys.executable).parent / "ansible-playbook"
    argv = [os.fspath(program), "-i", "localhost,", "-c", "local", "--check", "--diff", "-vvvv", "play.yml"]
    env = {**environment(tmp_path), **user}
    done = subprocess.run(argv, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    output = done.stdout + done.stderr
    assert (done.returncode == 0) is not bool(words), output
    assert words in " ".join(output.split()) and SECRET not in output
    assert not pathlib.Path("/etc/muster/filesystems").exists()
    assert not list(pathlib.Path("/etc/systemd/system").glob("*muster*test*nas.mount"))
