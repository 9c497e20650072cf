# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""MinIO's description: keys in files, nothing asked of elsewhere, and its end told. tests/e2e has the real program."""

from __future__ import annotations

import base64
import dataclasses

from ansible_collections.muster.training.plugins.plugin_utils._services import minio, own_certificate
from ansible_collections.muster.training.plugins.plugin_utils._services.component import (
    ACCESS,
    SECRET,
    TLS_CERTIFICATE,
    TLS_KEY,
    Site,
    make_keys,
)

SITE = Site("store", "http://10.0.0.1:9000", "10.0.0.1", 9000, "/data", "/files")


def test_the_keys_are_in_files_that_the_variables_name() -> None:
    made = make_keys()
    files, variables = minio.write_files(SITE, made), minio.environment(SITE)
    assert {variables["MINIO_ROOT_USER_FILE"], variables["MINIO_ROOT_PASSWORD_FILE"]} == {f"/files/{x}" for x in files}
    assert files == {"root-user": made[ACCESS], "root-password": made[SECRET]}
    said = " ".join([*minio.command(SITE), *variables.values()])
    assert not [value for value in made.values() if value in said]
    assert variables["MINIO_BROWSER"] == variables["MINIO_UPDATE"] == "off"


def test_it_listens_at_its_address_and_has_the_certificate_where_it_looks() -> None:
    site = dataclasses.replace(SITE, endpoint="https://[fd00::1]:9000", listen="fd00::1")
    pair = own_certificate.make("store", ["fd00::1"])
    texts = zip((TLS_KEY, TLS_CERTIFICATE), pair, strict=True)
    made = make_keys() | {name: base64.b64encode(text.encode()).decode() for name, text in texts}
    files, words = minio.write_files(site, made), minio.command(site)
    assert [files["private.key"], files["public.crt"]] == pair
    assert words[words.index("--address") + 1] == "[fd00::1]:9000" and words[-1] == "/data"
    assert words[words.index("--certs-dir") + 1] == "/files"


def test_who_chooses_it_is_told_of_its_end() -> None:
    assert "has ended" in minio.COMPONENT.warning and "CVE-2025-62506" in minio.COMPONENT.warning
