"""Secrets: where credentials come from, and how they are kept out of everything that is written or printed.

A scenario file names a secret, it never holds one: ``${env:NAME}`` and ``${file:PATH}`` in a header value,
``api_key_env``, ``api_key_file`` or ``headers_file``. Where none of them gives an Authorization header and
``PLIMSOLL_API_KEY`` is set, that is used. Nothing here logs, caches or writes.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from documents import files
from harness.http.dialect import header_error

#: Used when the target gives no Authorization header.
IMPLICIT_KEY = "PLIMSOLL_API_KEY"
MASK = "[redacted]"
_REFERENCE = re.compile(r"\$\{(env|file):([^}]*)\}")
#: A literal value of such a header is taken for a secret even when the file holds it in the clear.
_SENSITIVE = re.compile(r"authorization|cookie|token|secret|password|api[-_]?key|(?:^|[-_])key$", re.IGNORECASE)
_SCHEME = re.compile(r"^(?:bearer|basic|token|key)\s+", re.IGNORECASE)
#: Shorter strings are words ("on", "eu"): replacing them would only garble messages.
_SHORTEST = 6


class Headers:
    """Resolved target headers. ``pairs`` is the only way to their values: ``repr`` and ``str`` show names
    only.
    """

    __slots__ = ("pairs", "secret_values")

    def __init__(self, pairs: tuple[tuple[str, str], ...], secret_values: frozenset[str]) -> None:
        self.pairs = pairs
        self.secret_values = secret_values

    def __repr__(self) -> str:
        return f"Headers({', '.join(name for name, _ in self.pairs)})"

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(self.pairs)

    def __reduce__(self) -> str:
        raise TypeError("headers may hold secrets: they are not pickled. Send .pairs over a private pipe")


def resolve(target: Mapping[str, Any], environ: Mapping[str, str] | None = None) -> tuple[Headers, list[str]]:
    """(headers ready to send, every error as ``where: what. next step``) of a scenario's ``target``.

    Reads the keys ``headers`` (name -> value), ``headers_file``, ``api_key_env`` and ``api_key_file``;
    all others are ignored. Later ones win: headers_file, then headers, and an API key only where there is
    no Authorization yet. ``environ`` is ``os.environ`` unless given. No error text holds a secret.
    """
    source = os.environ if environ is None else environ
    errors: list[str] = []
    secret: set[str] = set()
    found: dict[str, tuple[str, str]] = {}
    for name, text, where in _written(target, errors):
        value = _expand(text, where, source, secret, errors).strip()
        problem = header_error(name, value)
        if problem is not None:
            errors.append(f"{where}: {problem}")
            continue
        if _SENSITIVE.search(name):
            secret |= {value, _SCHEME.sub("", value)}
        found[name.lower()] = (name, value)
    explicit = "authorization" in found
    for key, where in _api_keys(target, source, errors):
        if explicit and where != IMPLICIT_KEY:
            errors.append(f"{where}: target.headers already has an Authorization header. Remove one of them")
            continue
        if "authorization" in found:
            continue
        problem = header_error("Authorization", f"Bearer {key}") if key else "it is empty. Put the key in it"
        if problem is not None:
            errors.append(f"{where}: {problem}")
            continue
        secret |= {key, f"Bearer {key}"}
        found["authorization"] = ("Authorization", f"Bearer {key}")
    return Headers(tuple(found.values()), frozenset(value for value in secret if value)), errors


def redact(text: str, secrets: Iterable[str]) -> str:
    """``text`` with every secret replaced by a mask, longest first; strings under 6 characters are left
    alone.
    """
    for value in sorted(secrets, key=len, reverse=True):
        if len(value) >= _SHORTEST and value in text:
            text = text.replace(value, MASK)
    return text


def sensitive_values(headers: Iterable[tuple[str, str]]) -> frozenset[str]:
    """What to redact from a server's error text: values of headers whose names say credential."""
    values: set[str] = set()
    for name, value in headers:
        if _SENSITIVE.search(name):
            values |= {value, _SCHEME.sub("", value)}
    return frozenset(value for value in values if len(value) >= _SHORTEST)


def url_secrets(url: str) -> frozenset[str]:
    """Credentials in a URL's query, such as ``?token=...``: by the names that would say credential of a header."""
    return sensitive_values(parse_qsl(urlsplit(url).query))


def _written(target: Mapping[str, Any], errors: list[str]) -> Iterator[tuple[str, str, str]]:
    """(name, unexpanded value, where) of headers_file and headers, in that order."""
    file = target.get("headers_file")
    if file:
        text = _read(str(file), "target.headers_file", errors)
        for number, line in enumerate((text or "").splitlines(), 1):
            if not line.strip() or line.lstrip().startswith("#"):
                continue
            name, colon, value = line.partition(":")
            if not colon:
                errors.append(f"{file}:{number}: no colon. Write one `Name: value` a line")
                continue
            yield name.strip(), value.strip(), f"{file}:{number}"
    for name, value in (target.get("headers") or {}).items():
        yield str(name), str(value), f"target.headers.{name}"


def _api_keys(target: Mapping[str, Any], environ: Mapping[str, str], errors: list[str]) -> Iterator[tuple[str, str]]:
    """(key, where) in the order of preference."""
    variable, file = target.get("api_key_env"), target.get("api_key_file")
    if variable and file:
        errors.append("target.api_key_file: api_key_env is given too. Remove one of them")
    if variable:
        value = _environment(str(variable), "target.api_key_env", environ, errors)
        if value is not None:
            yield value.strip(), "target.api_key_env"
    elif file:
        text = _read(str(file), "target.api_key_file", errors)
        if text is not None:
            yield text.strip(), "target.api_key_file"
    elif environ.get(IMPLICIT_KEY):
        yield environ[IMPLICIT_KEY].strip(), IMPLICIT_KEY


def _expand(text: str, where: str, environ: Mapping[str, str], secret: set[str], errors: list[str]) -> str:
    def value_of(match: re.Match[str]) -> str:
        kind, name = match[1], match[2].strip()
        if not name:
            errors.append(f"{where}: {match[0]} names nothing. Write ${{{kind}:NAME}}")
            return ""
        found = _environment(name, where, environ, errors) if kind == "env" else _read(name, where, errors)
        value = (found or "").strip()
        secret.add(value)
        return value

    expanded = _REFERENCE.sub(value_of, text)
    if "${" in _REFERENCE.sub("", text):
        errors.append(f"{where}: it holds ${{ but no ${{env:NAME}} or ${{file:PATH}}. Correct the reference")
    return expanded


def _environment(name: str, where: str, environ: Mapping[str, str], errors: list[str]) -> str | None:
    value = environ.get(name)
    if not value:
        state = "is not set" if value is None else "is empty"
        errors.append(f"{where}: the environment variable {name} {state}. Export {name}=... and run again")
        return None
    return value


def _read(path: str, where: str, errors: list[str]) -> str | None:
    try:
        return files.read_text(Path(path).expanduser(), pipe=True)
    except OSError as error:
        errors.append(f"{where}: can't read {path}: {files.why(error)}. Check the path and its permissions")
    except (UnicodeDecodeError, RuntimeError, ValueError):
        errors.append(f"{where}: can't read {path}: it is not a UTF-8 text file. Give the right file")
    return None
