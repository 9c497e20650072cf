# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Alertmanager as it is deployed: what it is given. ``test_alert_parts.py`` runs it, as a deployment makes it."""

from __future__ import annotations

import json
import pathlib

from ansible_collections.muster.training.plugins.plugin_utils._services.monitoring import alertmanager as subject
from ansible_collections.muster.training.tests.support.monitoring_services import make, site


def test_without_a_webhook_alerts_are_kept_and_sent_nowhere(tmp_path: pathlib.Path) -> None:
    files = subject.write_files(site(tmp_path), make(site(tmp_path), subject.COMPONENT))
    assert json.loads(files["alertmanager.yml"])["receivers"] == [{"name": "muster"}]
    assert not [name for name in files if name.startswith("webhook")]


def test_the_address_and_the_token_are_in_files_of_their_own(tmp_path: pathlib.Path) -> None:
    place = site(tmp_path, webhook="https://hooks.example.com/T0/secret-part", webhook_token="tok-1")
    files = subject.write_files(place, make(place, subject.COMPONENT))
    assert files["webhook.url"] == place.webhook and files["webhook.token"] == "tok-1"
    assert not [name for name, text in files.items() if "secret-part" in text and name != "webhook.url"]
    assert "secret-part" not in " ".join(subject.command(place)) + repr(place)


def test_a_configuration_of_its_user_is_taken_as_it_is(tmp_path: pathlib.Path) -> None:
    place = site(tmp_path, config="route: {receiver: mail}\nreceivers: [{name: mail}]\n")
    assert subject.write_files(place, make(place, subject.COMPONENT))["alertmanager.yml"] == place.config
