# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How programs of Prometheus are asked for a user, and ask others."""

from __future__ import annotations

import json
import pathlib

from ansible_collections.muster.training.plugins.plugin_utils._services.component import Peer
from ansible_collections.muster.training.plugins.plugin_utils._services.monitoring import web_login as subject
from ansible_collections.muster.training.tests.support.monitoring_services import make, site


def test_a_service_without_https_has_a_user_and_no_key(tmp_path: pathlib.Path) -> None:
    secure = site(tmp_path)
    made = make(secure)
    assert set(subject.write_files(secure, made)) == {"web.yml", "tls.key", "tls.crt"}
    text = subject.write_files(site(tmp_path, endpoint="http://127.0.0.1:1"), made)["web.yml"]
    assert list(json.loads(text)) == ["basic_auth_users"] and made[subject.PASSWORD] not in text


def test_what_another_service_asks_for_is_sent() -> None:
    assert subject.describe_client(Peer("http://a")) == {}
    assert subject.describe_client(Peer("http://a", "PEM", "u", "p")) == {
        "basic_auth": {"username": "u", "password": "p"}, "tls_config": {"ca": "PEM"},
    }  # fmt: skip
    assert subject.describe_client(Peer("http://a", token="t")) == {"authorization": {"credentials": "t"}}
