# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a login puts between a controller and a node: other shells, terminals, banners, and what never answers.

A real sshd of the user's own, with one address for each kind of login: its ForceCommand does what sshd would do with
that login shell, ``SHELL -c COMMAND``, and what the user's own files would do before.
"""

from __future__ import annotations

import getpass
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import typing as t

import pytest

from ansible_collections.muster.training.tests.e2e.playbook_world import World, until
from ansible_collections.muster.training.tests.e2e.test_bad_host import assert_refused, script

pytestmark = pytest.mark.usefixtures("sshd_works")
ENDS_S = 30.0
# Has its command run at a terminal of its own, which nobody types at.
AT_A_TERMINAL = (
    sys.executable,
    "-c",
    "import os, pty, sys; sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))",
)
# The kinds of login by the last part of their address; a shell that is not installed is left out, which is printed.
LOGINS: t.Final = {
    "tcsh": (2, 'exec tcsh -c "$SSH_ORIGINAL_COMMAND"'),
    "fish": (3, 'exec bash -c \'exec fish -c "$1"\' - "$SSH_ORIGINAL_COMMAND"'),
    "noisy": (
        4,
        "echo 'Welcome. Unauthorised use: not found' >&2; module load cuda; exec bash -c \"$SSH_ORIGINAL_COMMAND\"",
    ),
    "terminal": (5, 'exec bash -c "$SSH_ORIGINAL_COMMAND"'),
    "stands": (6, "exec sleep 600"),
    "bsd-csh": (7, 'exec bsd-csh -c "$SSH_ORIGINAL_COMMAND"'),
}


class Logins:
    """An sshd whose addresses are logins of different kinds."""

    def __init__(self, root: pathlib.Path) -> None:
        self.root = root
        for name in ("host_key", "user_key"):
            argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(root / name)]
            subprocess.run(argv, check=True, capture_output=True)
        cases = "".join(f"127.0.5.{number}) {line};;\n" for number, line in LOGINS.values())
        (root / "login").write_text(f"#!/bin/sh\ncase $(echo $SSH_CONNECTION | cut -d' ' -f3) in\n{cases}esac\n")
        (root / "login").chmod(0o755)
        (root / "banner").write_text("*** This system is monitored: python3 not found here ***\n")
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        # At addresses of 127.0.5.0/24, where the port is as free as on the first one.
        listen = "".join(f"ListenAddress 127.0.5.{number}:{self.port}\n" for number, _line in LOGINS.values())
        (root / "sshd.conf").write_text(
            f"{listen}HostKey {root}/host_key\nAuthorizedKeysFile {root}/user_key.pub\nPidFile {root}/sshd.pid\n"
            f"UsePAM no\nStrictModes no\nForceCommand {root}/login\nBanner {root}/banner\nMaxSessions 100\n"
            f"PermitRootLogin prohibit-password\nAllowUsers {getpass.getuser()}\n"
        )
        program = shutil.which("sshd") or "/usr/sbin/sshd"
        subprocess.run([program, "-f", str(root / "sshd.conf"), "-E", str(root / "sshd.log")], check=True)
        until(lambda: (root / "sshd.pid").exists(), "sshd")

    def hosts(self, *names: str) -> dict[str, dict[str, object]]:
        """Variables of hosts that are reached by these logins."""
        key = " ".join((self.root / "host_key.pub").read_text().split()[:2])
        known = self.root / "known_hosts"
        numbers = {name: LOGINS[name][0] for name in names}
        known.write_text("".join(f"[127.0.5.{number}]:{self.port} {key}\n" for number, _ in LOGINS.values()))
        return {
            name: {
                "ansible_connection": "ssh",
                "ansible_host": f"127.0.5.{number}",
                "ansible_port": self.port,
                "ansible_user": getpass.getuser(),
                "ansible_ssh_private_key_file": str(self.root / "user_key"),
                "ansible_ssh_common_args": f"-o UserKnownHostsFile={known}",
                "muster_address": f"127.0.5.{number}",
                **({"ansible_ssh_extra_args": "-tt"} if name == "terminal" else {}),
            }
            for name, number in numbers.items()
        }

    def end(self) -> None:
        os.kill(int((self.root / "sshd.pid").read_text()), signal.SIGTERM)


@pytest.fixture
def logins(tmp_path: pathlib.Path) -> t.Iterator[Logins]:
    (tmp_path / "sshd").mkdir()
    found = Logins(tmp_path / "sshd")
    yield found
    found.end()


def test_a_job_runs_whatever_the_login_is(world: World, logins: Logins) -> None:
    """csh and fish, a banner, words on standard error, and a command of ~/.bashrc that is not there."""
    names = [name for name in ("tcsh", "bsd-csh", "fish", "noisy") if name == "noisy" or shutil.which(name)]
    print(f"logins: {', '.join(names)}")
    job = world.job(nodes=len(names))
    result = world.play(job=job, hosts=logins.hosts(*names), muster_train_hosts=",".join(names))
    assert result.code == 0, result.output
    assert world.record()["outcome"] == "succeeded"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("terminal", ("ssh gives commands a terminal", "ansible_ssh_extra_args", "RequestTTY")),
        ("stands", ("no answer within", "its user's login ends")),
    ],
)
def test_a_login_that_cannot_be_used_is_told_within_half_a_minute(
    world: World, logins: Logins, name: str, words: tuple[str, ...]
) -> None:
    hosts = logins.hosts("noisy", name)
    result = world.play(job=world.job(), hosts=hosts, muster_train_hosts=f"noisy,{name}")
    print(f"refused after {result.seconds:.1f} s")
    assert result.seconds <= ENDS_S, result.output
    assert_refused(world, result, name, *words)


# What a person would be asked for at a terminal, by variables of the host; the words that say it.
PROMPTS: t.Final = {
    "host key": ("its SSH host key is not known", "ssh-keyscan -p", "127.0.5.4"),
    "passphrase": ("Permission denied (publickey", "ssh-add"),
    "sudo": ("Missing sudo password", "--ask-become-pass"),
}


@pytest.mark.parametrize("prompt", PROMPTS)
def test_a_question_that_needs_a_person_ends_the_playbook(world: World, logins: Logins, prompt: str) -> None:
    """At a terminal, too: a host key to be accepted, a key's passphrase, the password of sudo."""
    hosts = logins.hosts("noisy")
    host = hosts["noisy"]
    if prompt == "host key":
        host["ansible_ssh_common_args"] = f"-o UserKnownHostsFile={world.root}/empty"
    elif prompt == "passphrase":
        argv = ["ssh-keygen", "-q", "-p", "-N", "a passphrase", "-f", str(logins.root / "user_key")]
        subprocess.run(argv, check=True, capture_output=True)
    else:
        # What sudo does without a terminal where its rules ask for a password.
        text = "#!/bin/sh\necho 'sudo: a password is required' >&2\nexit 1\n"
        host.update(ansible_become=True, ansible_become_exe=script(world.root / "sudo", text))
    world.prefix = AT_A_TERMINAL
    result = world.play(job=world.job(nodes=1), hosts=hosts, muster_train_hosts="noisy")
    print(f"refused after {result.seconds:.1f} s: {result.errors}")
    assert result.seconds <= ENDS_S, result.output
    assert_refused(world, result, "noisy", *PROMPTS[prompt])


# Playbooks whose first task on a machine is a module of Ansible's own, or one that asks as another user, and what each
# has to be given for it to come there.
MOUNTS: t.Final = [
    {"kind": "shared_filesystem", "mode": "bind", "name": "d", "provider": "nfs", "endpoint": "10.0.0.1:/d"}
]
FIRST_ASKED: t.Final[dict[str, dict[str, object]]] = {
    "backup": {},
    "cluster": {},
    "exporters": {},
    "reaper": {"muster_reaper_host": "stands", "muster_reaper_providers": [{"name": "lambda", "api_token_file": "/k"}]},
    "restore": {"muster_backup": "latest"},
    "services": {"muster_services": MOUNTS},
    "upgrade": {"k3s_version": "v1.35.2+k3s1"},
}


def test_every_playbook_ends_where_a_login_stands(world: World, logins: Logins) -> None:
    """All at once; each would wait without end, as Ansible does for a command that never begins."""
    hosts = logins.hosts("stands")
    hosts["stands"]["muster_k3s_role"] = "server"
    named = {"muster_train_hosts": "stands", "muster_node_hosts": "stands"}
    plays = {name: world.start(name, hosts=hosts, **named, **values) for name, values in FIRST_ASKED.items()}
    results = {name: play.wait() for name, play in plays.items()}
    print({name: f"{result.seconds:.1f} s" for name, result in results.items()})
    for name, result in results.items():
        assert result.code != 0 and "Traceback" not in result.output, result.output
        (error,) = result.errors
        assert "stands: no answer" in error and "its user's login ends" in error, (name, error)
