# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Signed addresses of a controller without botocore, for unit tests: real signatures are proven on real stores."""

from __future__ import annotations

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._services import s3_addresses


def use(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have every address signed with a word."""

    def load(_keys: s3_addresses.S3Keys, region: str) -> object:
        return lambda method, url, seconds, headers: (
            f"{url}{'&' if '?' in url else '?'}X-Amz-Signature={'-'.join([method, region, str(seconds), *headers])}"
        )

    monkeypatch.setattr(s3_addresses, "_load_botocore", load)
