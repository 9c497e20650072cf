# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The sources of a secret: an option, a file or the environment, in this order."""

from __future__ import annotations

import dataclasses
import os
import typing as t
from collections.abc import Mapping

from .._model.errors import InputError
from .secret import MAX_LENGTH, Secret


def read_file(path: str, option: str, *, token: bool = False) -> Secret:
    """Return the secret in the file ``path``; its modes are the user's affair (mounted secrets are often 0444)."""
    try:
        with open(os.path.expanduser(path), "rb") as stream:
            data = stream.read(MAX_LENGTH + 2)
    except (OSError, ValueError) as exc:
        reason = getattr(exc, "strerror", None) or "not a usable path"
        raise InputError(option, f"the file cannot be read ({reason.lower()})") from None
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        raise InputError(option, "the file is not UTF-8 text") from None
    return Secret(text, option, token=token)


@dataclasses.dataclass(frozen=True, slots=True)
class SecretSource:
    """The ways to give one secret: the option, an option that names a file, environment variables.

    ``token`` asks for a bare token, as HTTP headers need.
    """

    option: str
    file_option: str = ""
    variables: tuple[str, ...] = ()
    token: bool = True

    def find(
        self, value: t.Any = None, file: str | None = None, environ: Mapping[str, str] | None = None
    ) -> Secret | None:
        """Return the secret in ``value``, else in ``file``, else in the first variable that is set; None if in none.

        An empty value or variable counts as not set. Raises :class:`InputError` naming the source of a value that
        cannot be a secret.
        """
        if value is not None and value != "":
            return Secret(value, self.option, token=self.token)
        if file:
            return read_file(file, self.file_option or self.option, token=self.token)
        environ = os.environ if environ is None else environ
        for name in self.variables:
            if environ.get(name):
                return Secret(environ[name], f"environment variable {name}", token=self.token)
        return None

    def need(self, value: t.Any = None, file: str | None = None, environ: Mapping[str, str] | None = None) -> Secret:
        """Return the secret as :meth:`find` does, or raise :class:`InputError` naming every way to give it."""
        secret = self.find(value, file, environ)
        if secret is None:
            # Where in the options it is missing is said before: the user may have it in a variable of another name.
            options = [name.rpartition(".")[2] for name in (self.option, self.file_option)]
            ways = [*options, *(f"environment variable {name}" for name in self.variables)]
            raise InputError(self.option, "is missing", f"Set {' or '.join(way for way in ways if way)}")
        return secret
