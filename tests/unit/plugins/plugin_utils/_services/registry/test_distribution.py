# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The settings of a registry that is deployed, and its user; the program itself reads them in an end-to-end test."""

from __future__ import annotations

import ctypes
import ctypes.util
import json

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import RefusedError
from ansible_collections.muster.training.plugins.plugin_utils._services.component import TLS_CERTIFICATE, TLS_KEY, Site
from ansible_collections.muster.training.plugins.plugin_utils._services.registry import distribution as subject


def site(scheme: str = "https") -> Site:
    return Site("own", f"{scheme}://10.0.0.5:5000", "10.0.0.5", 5000, "/data", "/files")


def test_a_hash_is_of_its_password_and_each_is_another() -> None:
    one, two = subject.hash_password("canary-password-1"), subject.hash_password("canary-password-1")
    library = ctypes.CDLL(ctypes.util.find_library("crypt"))
    library.crypt.restype = ctypes.c_char_p
    assert one != two and one.startswith("$2y$10$")
    assert library.crypt(b"canary-password-1", one.encode()) == one.encode()
    assert library.crypt(b"canary-password-2", one.encode()) != one.encode()


@pytest.mark.parametrize("library", [None, ctypes.util.find_library("c")])
def test_a_controller_that_makes_no_bcrypt_is_refused(monkeypatch: pytest.MonkeyPatch, library: str | None) -> None:
    monkeypatch.setattr(ctypes.util, "find_library", lambda _name: library)
    with pytest.raises(RefusedError, match="makes no bcrypt.*bind a registry"):
        subject.hash_password("canary-password-1")


def test_its_files_have_the_hash_and_no_password() -> None:
    credentials = {**subject.make_credentials(), TLS_KEY: "a2V5", TLS_CERTIFICATE: "Y2VydA=="}
    files = subject.write_files(site(), credentials)
    config = json.loads(files["registry.yml"])
    assert config["http"]["addr"] == "10.0.0.5:5000" and config["storage"]["delete"] == {"enabled": True}
    assert config["auth"]["htpasswd"]["path"] == "/files/htpasswd" and files["tls.key"] == "key"
    assert config["http"]["tls"] == {"key": "/files/tls.key", "certificate": "/files/tls.crt"}
    assert files["htpasswd"].startswith("registry-user:$2y$") and credentials[subject.PASSWORD] not in "".join(
        files.values()
    )
    assert "tls" not in json.loads(subject.write_files(site("http"), credentials)["registry.yml"])["http"]
    assert subject.command(site()) == ["serve", "/files/registry.yml"]
