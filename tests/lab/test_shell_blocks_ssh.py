# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A reader of ``guide_ssh`` types its shell blocks at a terminal, with two hosts that take a password at first."""

from __future__ import annotations

import fcntl
import os
import pathlib
import pwd
import re
import select
import subprocess
import termios
import time
import typing as t

import pytest

from ansible_collections.muster.training.tests.lab import nodes
from ansible_collections.muster.training.tests.support.shell_blocks import (
    Reader,
    own_environment,
    read_blocks,
    read_example,
    split_commands,
)

BLOCKS = ("guide_ssh-0", "guide_ssh-1")
PASSWORD = "a-password-of-the-lab"
USER = "ubuntu"
ANSWERS = {"Enter passphrase": "", "Enter same passphrase": "", "password:": PASSWORD}
LIMIT_S = 60.0
# OpenSSH reads the home of its user from the system, not from HOME: the reader's own .ssh is mounted there.
OWN_SSH = 'mount --make-rprivate / && mount --bind "$HOME/.ssh" "$0" && exec "$@"'


def at_a_terminal(argv: t.Sequence[str], environment: t.Mapping[str, str], folder: pathlib.Path) -> tuple[int, str]:
    """Run a command at a terminal of its own and answer what it asks; return its exit code and what was shown."""
    leader, follower = os.openpty()
    process = subprocess.Popen(
        argv, stdin=follower, stdout=follower, stderr=follower, env=environment, cwd=folder, start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )  # fmt: skip
    os.close(follower)
    shown, answered, end = "", 0, time.monotonic() + LIMIT_S
    while time.monotonic() < end:
        if select.select([leader], [], [], 0.2)[0]:
            try:
                shown += os.read(leader, 4096).decode(errors="replace")
            except OSError:
                break
        asked = next((answer for words, answer in ANSWERS.items() if words in shown[answered:]), None)
        if asked is not None:
            answered = len(shown)
            os.write(leader, f"{asked}\n".encode())
    os.close(leader)
    return process.wait(5), shown


@pytest.fixture
def reader(lab: nodes.Lab, tmp_path: pathlib.Path) -> t.Iterator[Reader]:
    """A reader without a key, and the user of the guide on both hosts, with a password."""
    home, folder = tmp_path / "home", tmp_path / "work"
    (home / ".ssh").mkdir(parents=True, mode=0o700)
    folder.mkdir()
    own = pathlib.Path(pwd.getpwuid(os.geteuid()).pw_dir) / ".ssh"
    own.mkdir(mode=0o700, exist_ok=True)
    first, second = lab.nodes
    rules = f"Match User {USER}\\n  PasswordAuthentication yes\\n  AuthorizedKeysFile .ssh/authorized_keys\\n"
    for node in lab.nodes:
        lab.ask(node.name, "useradd", "--create-home", "--shell", "/bin/bash", USER)
        lab.ask(node.name, "sh", "-c", f"echo {USER}:{PASSWORD} | chpasswd")
        lab.ask(node.name, "sh", "-c", f"printf '{rules}' >> /etc/ssh/sshd_config && systemctl reload ssh")
    found = Reader(folder, own_environment(home), {"first host": first.address, "second host": second.address})
    found.prefix = ["unshare", "--mount", "sh", "-c", OWN_SSH, str(own)]
    inventory = read_example("guide_hosts", 0)["all"]["children"]
    inventory["muster_nodes"]["vars"] = read_example("guide_ssh", 0)["muster_nodes"]["vars"]
    for name, node in zip(("gpu-1", "gpu-2"), lab.nodes, strict=True):
        inventory["muster_nodes"]["hosts"][name]["ansible_host"] = node.address
    # The sockets of connections have short paths only.
    found.write("ansible.cfg", "[ssh_connection]\nssh_args = -o ControlMaster=no\n")
    found.write("inventory.yml", inventory)
    yield found
    for node in lab.nodes:
        lab.ask(node.name, "sh", "-c", f"sed -i '/^Match User {USER}/,$d' /etc/ssh/sshd_config; systemctl reload ssh")
        lab.ask(node.name, "sh", "-c", f"loginctl terminate-user {USER} 2>/dev/null; userdel --force --remove {USER}")


def test_from_a_password_to_a_key_and_a_host_that_is_forgotten(reader: Reader) -> None:
    shown = []
    for command in split_commands(read_blocks()[BLOCKS[0]]):
        argv = [*reader.prefix, "bash", "-c", reader.fill(command)]
        code, text = at_a_terminal(argv, reader.environment, reader.folder)
        print(f"$ {command}\n{text}")
        assert code == 0, f"{command}\n{text}"
        shown.append(text)
    home = pathlib.Path(reader.environment["HOME"])
    known = home / ".ssh" / "known_hosts"
    assert shown[-1].count('"pong"') == 2 and "password:" not in shown[-1], shown[-1]
    first = reader.fills["first host"]
    assert isinstance(first, str) and first in known.read_text()
    reader.run(BLOCKS[1])
    assert not re.search(rf"^{re.escape(first)} ", known.read_text(), re.MULTILINE) and known.read_text()
