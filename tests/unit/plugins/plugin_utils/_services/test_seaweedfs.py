# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""SeaweedFS' description: keys that differ each time, and nothing but the gateway on the network."""

from __future__ import annotations

import base64
import dataclasses
import json

from ansible_collections.muster.training.plugins.plugin_utils._services import own_certificate, seaweedfs
from ansible_collections.muster.training.plugins.plugin_utils._services.component import (
    ACCESS,
    SECRET,
    TLS_CERTIFICATE,
    TLS_KEY,
    Site,
)

SITE = Site("store", "http://10.0.0.1:8333", "10.0.0.1", 8333, "/data", "/files")


def test_only_the_gateway_listens_on_the_network() -> None:
    words = seaweedfs.command(SITE)
    assert "-s3.ip.bind=10.0.0.1" in words and "-ip.bind=127.0.0.1" in words and "-dir=/data" in words
    assert [word for word in words if "10.0.0.1" in word] == ["-s3.ip.bind=10.0.0.1"]
    assert {"-s3.autoCreateBucket=false", "-master.telemetry=false", "-s3.iam=false"} <= set(words)


def test_with_https_the_gateway_has_the_certificate_of_its_addresses() -> None:
    site = dataclasses.replace(SITE, endpoint="https://10.0.0.1:8333")
    pair = own_certificate.make("store", ["10.0.0.1"])
    texts = zip((TLS_KEY, TLS_CERTIFICATE), pair, strict=True)
    made = seaweedfs.make_credentials() | {name: base64.b64encode(text.encode()).decode() for name, text in texts}
    files = seaweedfs.write_files(site, made)
    assert [files["tls.key"], files["tls.crt"]] == pair
    assert {"-s3.key.file=/files/tls.key", "-s3.cert.file=/files/tls.crt"} <= set(seaweedfs.command(site))
    assert "tls.key" not in seaweedfs.write_files(SITE, made) and "tls" not in " ".join(seaweedfs.command(SITE))


def test_the_files_hold_the_keys_and_the_command_does_not() -> None:
    made, other = seaweedfs.make_credentials(), seaweedfs.make_credentials()
    assert not set(made.values()) & set(other.values())
    files = seaweedfs.write_files(SITE, made)
    (identity,) = json.loads(files["s3.json"])["identities"]
    assert identity["credentials"] == [{"accessKey": made[ACCESS], "secretKey": made[SECRET]}]
    assert files["grpc.key"].startswith("-----BEGIN PRIVATE KEY") and "CERTIFICATE" in files["grpc.crt"]
    for part in ("master", "volume", "filer", "s3", "client"):
        assert f'[grpc.{part}]\ncert = "/files/grpc.crt"\nkey = "/files/grpc.key"' in files["security.toml"]
    assert not [value for value in made.values() if value in " ".join(seaweedfs.command(SITE))]
