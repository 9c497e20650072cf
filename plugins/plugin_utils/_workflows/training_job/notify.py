# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The message at the end of a run: to a webhook, by mail, or both. A failure here is a warning, never the run's end.

A webhook's address and a mail password are secrets: they are in no message, log or record.
"""

from __future__ import annotations

import contextlib
import email.message
import json
import smtplib
import ssl
import threading
import typing as t
import urllib.parse

from ....module_utils._http.client import HttpClient
from ....module_utils._http.messages import HttpRequest
from ....module_utils._http.urls import BaseUrl, parse_base_url
from ....module_utils._model import validators
from ....module_utils._model.errors import InputError, MusterError, one_line
from ....module_utils._model.timestamps import parse_time
from ....module_utils._secrets.scrubber import scrub
from ....module_utils._secrets.secret import Secret
from ..shared.request import Result

_MAIL_S = 20.0
_MAIL_KEYS = ("to", "from", "host", "port", "user", "password", "tls")
_ON = ("end", "failure")
Send = t.Callable[[HttpRequest, str], None]
Tell = t.Callable[[str], None]
Connect = t.Callable[[t.Mapping[str, t.Any]], smtplib.SMTP]


def check_target(value: t.Any) -> dict[str, t.Any]:
    """Return the checked option ``notify``; its secrets are known to the scrubber from here on.

    :raises InputError: naming the key.
    """
    given = validators.dictionary(value or {}, "notify")
    for key in given:
        if key not in ("webhook", "mail", "on"):
            raise InputError(f"notify.{key}", "is not an option", "Known are: webhook, mail, on")
    if given.get("webhook"):
        Secret(given["webhook"], "notify.webhook")
        base, query = _split_webhook(given["webhook"])
        for part in (base.path, *(text for _name, text in query)):
            # Without the rest of the address its path or a token still is the secret; a short part is none.
            with contextlib.suppress(InputError):
                Secret(part, "notify.webhook")
    if given.get("mail"):
        mail = validators.dictionary(given["mail"], "notify.mail")
        missing = [key for key in ("to", "from", "host") if not mail.get(key)]
        unknown = [key for key in mail if key not in _MAIL_KEYS]
        if missing or unknown:
            problem = "is required" if missing else "is not an option"
            raise InputError(f"notify.mail.{(missing or unknown)[0]}", problem, f"Known are: {', '.join(_MAIL_KEYS)}")
        if mail.get("password"):
            Secret(mail["password"], "notify.mail.password")
    validators.choice(*_ON)(given.get("on", "end"), "notify.on")
    return given


def add_notification(target: t.Mapping[str, t.Any], result: Result, began: float, send: Send | None = None) -> Result:
    """Send word of a run that ended after ``began`` (Unix seconds); return its result, with warnings of what failed.

    A run that had ended before is not news.
    """
    run = result.get("run")
    if not target or not isinstance(run, dict) or not run.get("ended_at") or parse_time(run["ended_at"]) < began:
        return result
    failed = run.get("outcome") != "succeeded" or bool(run.get("unstored"))
    if target.get("on", "end") == "failure" and not failed:
        return result
    about = {"run_id": result["run_id"], "outcome": run["outcome"], "cause": run.get("cause")}
    known = [str(item) for item in t.cast("list[object]", result.get("warnings") or [])]
    warnings = [*known, *_send_all(target, describe_end(result), about, send)]
    return {**result, "warnings": warnings} if warnings else result


def build_sender(value: t.Any, run_id: str, say: t.Callable[[str], None], send: Send | None = None) -> Tell:
    """Return what sends word of a run that continues, beside it; ``say`` gets what could not be sent."""
    target = check_target(value)

    def tell(text: str) -> None:
        line = scrub(one_line(f"muster.training: run {run_id}: {text}"))
        for problem in _send_all(target, line, {"run_id": run_id, "outcome": None, "cause": None}, send):
            say(f"warning: {problem}")

    return lambda text: threading.Thread(target=tell, args=(text,), name="notify", daemon=True).start()


def _send_all(target: t.Mapping[str, t.Any], text: str, about: t.Mapping[str, object], send: Send | None) -> list[str]:
    """Send a line to each target; return what could not be sent."""
    problems = []
    for name, work in (("webhook", send or _post), ("mail", _send_mail)):
        if target.get(name):
            try:
                _dispatch(name, work, target[name], text, about)
            except (MusterError, OSError, smtplib.SMTPException) as error:
                reason = scrub(one_line(str(error) or type(error).__name__))
                problems.append(f"notify.{name}: the message was not sent: {reason}")
    return problems


def describe_end(result: Result) -> str:
    """Return the message: one line that says how the run ended."""
    run = t.cast("dict[str, t.Any]", result["run"])
    reason = f": {run['detail']}" if run.get("detail") and run.get("outcome") != "succeeded" else ""
    unstored = f"; {run['unstored']}" if run.get("unstored") else ""
    return scrub(one_line(f"muster.training: run {result['run_id']} {run['outcome']}{reason}{unstored}"))


def _dispatch(name: str, work: t.Any, target: t.Any, text: str, about: t.Mapping[str, object]) -> None:
    if name == "mail":
        work(target, text)
        return
    # "text" is what chat services show; the other keys are for programs.
    headers = {"content-type": "application/json"}
    body = json.dumps({"text": text, **about}).encode()
    work(HttpRequest("POST", "", headers=headers, body=body, idempotent=False), target)


def _post(request: HttpRequest, url: str) -> None:
    base, query = _split_webhook(url)
    HttpClient(base).send(request._replace(query=query))


def _split_webhook(url: str) -> tuple[BaseUrl, list[tuple[str, str]]]:
    bare, _mark, query = url.partition("?")
    return parse_base_url(bare, "notify.webhook"), urllib.parse.parse_qsl(query, keep_blank_values=True)


def _send_mail(mail: t.Mapping[str, t.Any], text: str, connect: Connect | None = None) -> None:
    message = email.message.EmailMessage()
    message["Subject"], message["From"], message["To"] = text[:200], mail["from"], mail["to"]
    message.set_content(text + "\n")
    with (connect or _connect)(mail) as server:
        if mail.get("user"):
            server.login(str(mail["user"]), str(mail.get("password") or ""))
        server.send_message(message)


def _connect(mail: t.Mapping[str, t.Any]) -> smtplib.SMTP:
    """Open the mail server; ``tls`` is starttls (default), implicit, or none."""
    tls, context = mail.get("tls", "starttls"), ssl.create_default_context()
    port = int(mail.get("port") or {"implicit": 465, "none": 25}.get(tls, 587))
    if tls == "implicit":
        return smtplib.SMTP_SSL(str(mail["host"]), port, timeout=_MAIL_S, context=context)
    server = smtplib.SMTP(str(mail["host"]), port, timeout=_MAIL_S)
    if tls == "starttls":
        server.starttls(context=context)
    return server
