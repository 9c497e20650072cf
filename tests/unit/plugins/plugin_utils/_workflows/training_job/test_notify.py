# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The message at the end of a run: who gets it, what it says, and that a secret is in none of what is said about it."""

from __future__ import annotations

import http.server
import json
import pathlib
import threading
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError
from ansible_collections.muster.training.plugins.module_utils._secrets.scrubber import scrub
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job import notify
from ansible_collections.muster.training.tests.support import smtp
from ansible_collections.muster.training.tests.unit.plugins.module_utils._http.test_tls import make_certificate

ENDED = "1970-01-02T00:00:00.000+00:00"
BEGAN = 80_000.0


def result(**run: t.Any) -> dict[str, object]:
    values = {"outcome": "failed", "cause": "crash", "detail": "rank 0: out of memory", "ended_at": ENDED, **run}
    return {"changed": True, "run_id": "net-1", "run": values}


class Hook:
    """A web server that keeps what is posted to it."""

    def __init__(self, status: int) -> None:
        self.requests: list[tuple[str, dict[str, t.Any]]] = []
        hook = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                hook.requests.append((self.path, json.loads(body)))
                self.send_response(status)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_args: object) -> None:
                """Say nothing."""

        self.server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}/services/T0123/s3cr3t-Path?token=q4v-Zt19"


def told(target: dict[str, t.Any], value: dict[str, object]) -> dict[str, object]:
    return notify.add_notification(notify.check_target(target), value, BEGAN)


def test_a_webhook_gets_the_outcome_and_the_reason() -> None:
    hook = Hook(200)
    assert told({"webhook": hook.url}, result()) == result()
    ((path, body),) = hook.requests
    assert path == "/services/T0123/s3cr3t-Path?token=q4v-Zt19"
    assert body == {
        "text": "muster.training: run net-1 failed: rank 0: out of memory",
        "run_id": "net-1",
        "outcome": "failed",
        "cause": "crash",
    }


def test_a_webhook_that_refuses_is_a_warning_without_its_address() -> None:
    hook = Hook(403)
    (warning,) = t.cast("list[str]", told({"webhook": hook.url}, result())["warnings"])
    assert warning.startswith("notify.webhook: the message was not sent: ") and "403" in warning
    assert "s3cr3t" not in warning and "q4v" not in warning


@pytest.mark.parametrize(
    ("target", "values"),
    [
        ({}, {}),
        ({"on": "failure"}, {"outcome": "succeeded"}),
        ({}, {"ended_at": None}),
        ({}, {"ended_at": "1970-01-01T00:00:10+00:00"}),
    ],
    ids=["nobody is named", "only failures", "it has not ended", "it had ended before"],
)
def test_what_is_not_news(target: dict[str, t.Any], values: dict[str, t.Any]) -> None:
    hook = Hook(200)
    given = result(**values)
    asked = {**target, "webhook": hook.url} if target or values else {}
    assert told(asked, given) == given and hook.requests == []


@pytest.mark.parametrize("tls", ["starttls", "implicit", "none"])
def test_a_mail(tls: smtp.TLS, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    certificate = make_certificate(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", certificate[0])
    server = smtp.MailServer(tls, certificate, ("u", "pa55-w0rd-Zz"))
    mail = {"to": "me@example.com", "from": "muster@example.com", "host": "127.0.0.1", "port": server.port, "tls": tls}
    login = {"user": "u", "password": "pa55-w0rd-Zz"}
    assert "warnings" not in told({"mail": {**mail, **login}}, result(outcome="succeeded"))
    ((encrypted, to, message),) = server.received
    assert (encrypted, to) == (tls != "none", "<me@example.com>")
    assert message["Subject"] == "muster.training: run net-1 succeeded" and message["From"] == "muster@example.com"
    wrong = told({"mail": {**mail, **login, "password": "0ther-Zz-pa55"}}, result())
    (warning,) = t.cast("list[str]", wrong["warnings"])
    assert "the message was not sent" in warning and "the password is wrong" in warning and "0ther" not in warning
    server.close()


def test_a_mail_server_whose_certificate_is_not_trusted_gets_no_password(tmp_path: pathlib.Path) -> None:
    server = smtp.MailServer("starttls", make_certificate(tmp_path))
    mail = {"to": "me@example.com", "from": "muster@example.com", "host": "127.0.0.1", "port": server.port}
    (warning,) = t.cast(
        "list[str]", told({"mail": {**mail, "user": "u", "password": "pa55-w0rd-Zz"}}, result())["warnings"]
    )
    assert "certificate verify failed" in warning and server.received == []
    server.close()


def test_a_mail_server_that_is_away_is_a_warning() -> None:
    mail = {"to": "a@x.org", "from": "b@x.org", "host": "127.0.0.1", "port": 1, "tls": "none"}
    (warning,) = t.cast("list[str]", told({"mail": mail}, result())["warnings"])
    assert warning.startswith("notify.mail: the message was not sent: ")


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ({"web": "x"}, "notify.web: is not an option"),
        ({"webhook": "http://example.com/abcdefgh"}, "notify.webhook: must use https"),
        ({"mail": {"to": "a", "from": "b"}}, "notify.mail.host: is required"),
        ({"mail": {"to": "a", "from": "b", "host": "h", "pass": "x"}}, "notify.mail.pass: is not an option"),
        ({"on": "start"}, "notify.on"),
    ],
)
def test_a_wrong_target_is_refused_before_the_run(target: dict[str, t.Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        notify.check_target(target)


@pytest.mark.parametrize("url", ["https://chat.example/", "https://chat.example", "http://127.0.0.1:8931/hook?t=ab"])
def test_a_short_path_is_no_secret_and_no_mistake(url: str) -> None:
    assert notify.check_target({"webhook": url}) == {"webhook": url}


def test_a_token_of_a_webhook_is_hidden_alone_too() -> None:
    notify.check_target({"webhook": "https://chat.example/hook?token=Zq81-walnut-harbour"})
    assert "walnut" not in scrub("the server did not like Zq81-walnut-harbour")


def test_word_of_a_run_that_continues_is_sent_beside_it() -> None:
    sent: list[tuple[t.Any, str]] = []
    said: list[str] = []
    tell = notify.build_sender(
        {"webhook": "https://chat.example/hook"}, "r-1", said.append, lambda *item: sent.append(item)
    )
    tell("checkpoint 40 is not stored in small")
    for thread in [item for item in threading.enumerate() if item.name == "notify"]:
        thread.join(10)
    ((request, target),) = sent
    body = json.loads(request.body)
    assert target == "https://chat.example/hook" and said == []
    assert body["text"] == "muster.training: run r-1: checkpoint 40 is not stored in small" and body["outcome"] is None


def test_a_success_without_its_checkpoint_is_a_failure_to_be_told() -> None:
    run = {"outcome": "succeeded", "detail": "all ranks exited with code 0", "unstored": "checkpoint 9 is not stored"}
    result = {"run_id": "r-1", "run": {**run, "ended_at": "2030-01-01T00:00:00+00:00"}}
    sent: list[t.Any] = []
    target = {"webhook": "https://chat.example/hook", "on": "failure"}
    notify.add_notification(target, result, 0.0, lambda *item: sent.append(item))
    assert json.loads(sent[0][0].body)["text"] == "muster.training: run r-1 succeeded; checkpoint 9 is not stored"
