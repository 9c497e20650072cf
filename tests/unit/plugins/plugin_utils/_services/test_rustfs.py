# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""RustFS' description, started as its unit does: a strict stand-in refuses words and variables that RustFS has not."""

from __future__ import annotations

import base64
import pathlib
import socket
import ssl
import subprocess
import sys
import time
import urllib.request

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._services import own_certificate, rustfs
from ansible_collections.muster.training.plugins.plugin_utils._services.component import (
    ACCESS,
    SECRET,
    TLS_CERTIFICATE,
    TLS_KEY,
    Site,
    make_keys,
)
from ansible_collections.muster.training.tests.fakes import rustfs_program

SITE = Site("store", "http://10.0.0.1:9000", "10.0.0.1", 9000, "/data", "/files")


def test_the_keys_are_in_files_that_the_command_names() -> None:
    made = make_keys()
    files, words = rustfs.write_files(SITE, made), rustfs.command(SITE)
    assert files == {"access-key": made[ACCESS], "secret-key": made[SECRET]} and "--tls-path" not in words
    assert not [value for value in made.values() if value in " ".join(words)]
    assert rustfs.COMPONENT.warning == ""


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_strict_program_takes_the_command_and_serves_with_the_certificate(
    tmp_path: pathlib.Path, scheme: str
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    folders = {name: tmp_path / name for name in ("data", "files")}
    for folder in folders.values():
        folder.mkdir()
    site = Site("own", f"{scheme}://127.0.0.1:{port}", "127.0.0.1", port, *map(str, folders.values()))
    pair = own_certificate.make("own", ["127.0.0.1"])
    texts = zip((TLS_KEY, TLS_CERTIFICATE), pair, strict=True)
    made = make_keys() | {name: base64.b64encode(text.encode()).decode() for name, text in texts}
    for name, text in rustfs.write_files(site, made).items():
        (folders["files"] / name).write_text(text)
    argv = [sys.executable, rustfs_program.__file__, *rustfs.command(site)]
    with subprocess.Popen(argv, env=rustfs.environment(site), stderr=subprocess.PIPE, text=True) as process:
        try:
            trusted = urllib.request.HTTPSHandler(context=ssl.create_default_context(cadata=pair[1]))
            opener = urllib.request.build_opener(trusted)
            end = time.monotonic() + 20
            while True:
                try:
                    with opener.open(f"{site.endpoint}{rustfs.COMPONENT.ready}", timeout=2) as answer:
                        assert answer.status in rustfs.COMPONENT.statuses
                    break
                except OSError:
                    assert process.poll() is None and time.monotonic() < end, process.stderr and process.stderr.read()
                    time.sleep(0.05)
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("words", "variables"),
    [(["--console", "off"], {}), ([], {"RUSTFS_CONSOLE": "off"}), (["--secret-key-file", "/nowhere"], {})],
)
def test_the_stand_in_refuses_what_the_program_does_not_know(words: list[str], variables: dict[str, str]) -> None:
    argv = [sys.executable, rustfs_program.__file__, *rustfs.command(SITE)[:-1], *words, "/nowhere"]
    done = subprocess.run(argv, env=rustfs.environment(SITE) | variables, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and done.stderr
