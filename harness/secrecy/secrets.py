"""Where credentials come from, and how they are kept out of everything that is written or printed.

A scenario file names a secret and never holds one: ``${env:NAME}`` and ``${file:PATH}`` in a header value,
``api_key_env``, ``api_key_file`` or ``headers_file``. Where none of them gives an Authorization header,
``PLIMSOLL_API_KEY`` does, if it is set. Nothing here logs or writes.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from plimsoll.documents import files
from plimsoll.harness.secrecy.redaction import MASK, SHORTEST, Redactor, learn, redact
from plimsoll.harness.wire.headers import header_error

#: Used when the target gives no Authorization header.
IMPLICIT_KEY = "PLIMSOLL_API_KEY"
_REFERENCE = re.compile(r"\$\{(env|file):([^}]*)\}")
#: A literal value of such a header is taken for a secret even when the file holds it in the clear.
_SENSITIVE = re.compile(
    r"authorization|auth(?!or)|cookie|credential|session|signature|token|secret|password|api[-_]?key"
    r"|(?:^|[-_])(?:key|sig)$",
    re.IGNORECASE,
)
_SCHEME = re.compile(r"^(?:bearer|basic|token|key)\s+", re.IGNORECASE)
_COOKIE = re.compile(r"[\w!#$%&'*+.^`|~-]+=[^=\s]")
#: A URL: scheme, user, place and path, query. As the value of a flag it ends with the word, in a list (``--arm``) with
#: a comma.
_URL = re.compile(r"([a-z][a-z0-9+.-]*://)([^\s/?#@]*@)?([^\s?#]*)(\?\S*)?", re.IGNORECASE)
_URL_IN_LIST = re.compile(r"([a-z][a-z0-9+.-]*://)([^\s/?#@]*@)?([^\s?#,]*)(\?[^\s,]*)?", re.IGNORECASE)
_URL_FLAG = re.compile(r"(?:--?[\w-]+=)?[a-z][a-z0-9+.-]*://", re.IGNORECASE)
#: Values of these in a URL's query are no credentials; those of every other name may be.
_PLAIN = frozenset(
    (
        "alt", "api-version", "api_version", "channels", "deployment", "encoding", "format", "lang", "language",
        "model", "region", "sample_rate", "version", "voice",
    )
)  # fmt: skip
_WORD = r"(\"[^\"]*\"|'[^']*'|[^\s;&|)\"']+)"
#: Where a shell command may hold a credential under its name: ``--name VALUE``; ``NAME=VALUE``, quoted as a whole too
#: or after ``-e``; a header; a member of JSON. Each is looked for by itself, for one may lie in another. Of a long name
#: the end is enough: without that limit 16,000 letters took 0.8 s.
_IN_SHELL = (
    re.compile(rf"--?([A-Za-z][\w-]{{,127}})[= ]\s*{_WORD}"),
    re.compile(rf"(?=\b([A-Za-z_]\w*)={_WORD})"),
    re.compile(r"([A-Za-z][\w-]{,127}): *([^\"'\n]+)"),
    re.compile(r"([A-Za-z][\w-]{,127})\\*[\"']\s*:\s*\\*[\"']([^\"'\\]+)"),
)
#: User and password of a URL.
_USER = re.compile(r"://([^\s/@\"']+)@")
#: Literal values of these are written down as they are; those of every other header may be credentials, and are masked.
HARMLESS = frozenset(
    (
        "accept", "accept-charset", "accept-encoding", "accept-language", "anthropic-beta", "anthropic-version",
        "cache-control", "content-encoding", "content-language", "content-type", "inference-header-content-length",
        "openai-beta", "origin", "pragma", "prefer", "priority", "user-agent",
    )
)  # fmt: skip


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
        if problem is None and MASK in value:
            problem = f"header {name!r}: a run does not keep its value. Give it again: --header '{name}: ...'"
        if problem is not None:
            errors.append(f"{where}: {problem}")
            continue
        if _SENSITIVE.search(name):
            secret |= _credentials(value)
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
    secret = {part for value in secret for part in _bare(value)}  # a variable may hold a scheme, too: "Bearer ..."
    learn(secret)
    return Headers(tuple(found.values()), frozenset(value for value in secret if value)), errors


def sensitive_values(headers: Iterable[tuple[str, str]]) -> frozenset[str]:
    """The values of headers whose names say credential, as they stand and without their scheme: of 6 characters and
    more.
    """
    values: set[str] = set()
    for name, value in headers:
        if _SENSITIVE.search(name):
            values |= _credentials(value)
    return frozenset(value for value in values if len(value) >= SHORTEST)


def _credentials(value: str) -> set[str]:
    """What is secret in the value of a header that holds a credential: all of it, what follows a scheme, the password
    in Basic's base64, each cookie.
    """
    parts: set[str] = set()
    if value[:6].lower() != "basic " and (";" in value or _COOKIE.match(value)):
        parts = {part.partition("=")[2].strip() for part in value.split(";")}
    return _bare(value) | {part for part in parts if len(part) >= SHORTEST}


def _bare(value: str) -> set[str]:
    """A secret, what follows a scheme in it, and what Basic's base64 holds."""
    bare = _SCHEME.sub("", value)
    if value[:6].lower() != "basic ":
        return {value, bare}
    try:
        user, colon, password = base64.b64decode(bare + "=" * (-len(bare) % 4)).decode().partition(":")
    except (binascii.Error, ValueError):
        return {value, bare}
    parts = {f"{user}:{password}", password or user} if colon else set()
    return {value, bare} | {part for part in parts if len(part) >= SHORTEST}


def url_secrets(url: str) -> frozenset[str]:
    """Credentials in a URL: a password (or a user name without one), and query values by the names that would say
    credential of a header; decoded, and as they are written there.
    """
    try:
        parts = urlsplit(url if "://" in url else f"//{url}")
    except ValueError:
        return frozenset()
    user, colon, password = parts.netloc.rpartition("@")[0].partition(":")
    whole = password if colon else user
    return sensitive_values(_queries(url)) | {text for text in (whole, unquote(whole)) if len(text) >= SHORTEST}


def query_values(url: str) -> frozenset[str]:
    """Every value in a URL's query, decoded and as it is written there: what must not be written down."""
    return frozenset(value for _, value in _queries(url))


def _queries(url: str) -> list[tuple[str, str]]:
    """Names and values in a URL's query: decoded, and the values as they are written there."""
    query = url.partition("?")[2].partition("#")[0]
    written = [(unquote(name), value) for name, _, value in (part.partition("=") for part in query.split("&"))]
    return parse_qsl(query) + written


def learn_target(
    headers: Iterable[tuple[str, str]],
    options: Mapping[str, Any],
    url: str,
    secrets: Iterable[str] = (),
    public: Iterable[str] = (),
) -> None:
    """Have this process's redactor know everything of a target that may be secret. ``secrets``: what references stood
    for. ``public``: what is no secret though a header without a telling name may repeat it (the model); the host isn't
    one, either.
    """
    pairs = [*headers, *option_headers(options)]
    quiet = [(name, value) for name, value in pairs if name.lower() not in HARMLESS]
    quiet += [(name, value) for name, value in _queries(url) if name.lower() not in _PLAIN]
    private = {value for _, value in quiet if len(value) >= SHORTEST} - {*public, *_hosts(url)}
    found = {*secrets, *sensitive_values(pairs), *url_secrets(url), *private}
    learn({part for value in found for part in _bare(value)})


def _hosts(url: str) -> tuple[str, ...]:
    try:
        parts = urlsplit(url if "://" in url else f"//{url}")
        return (parts.hostname or "", parts.netloc, f"{parts.scheme}://{parts.netloc}", url)
    except ValueError:
        return ()


def option_headers(options: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Headers that a protocol's own options hold."""
    given = [options.get(name) for name in ("headers", "metadata")]
    return [(str(name), str(text)) for pairs in given if isinstance(pairs, Mapping) for name, text in pairs.items()]


def public_value(name: str, value: str) -> str:
    """A header's value as it may be written down: of a harmless one and of a bare reference as it is, else the mask."""
    literal = _SCHEME.sub("", _REFERENCE.sub("", value)).strip()
    return redact(value) if name.lower() in HARMLESS or not literal else MASK


def public_command(
    words: Iterable[str],
    headers: Sequence[tuple[str, str]] = (),
    urls: Sequence[str] = ("",),
    public: Iterable[str] = (),
) -> list[str]:
    """A command line as it may be written down: without what the redactor knows, without users and queries of URLs and
    without the values of ``headers`` (as the scenario writes them). ``public``: as for ``learn_target``.
    """
    for url in urls:
        learn_target([(name, value) for name, value in headers if not _REFERENCE.search(value)], {}, url, (), public)
    shown = []
    for word in words:
        for url in sorted(filter(None, urls), key=len, reverse=True):
            word = word.replace(url, _URL.sub(_bare_url, url))
        shown.append(redact((_URL if _URL_FLAG.match(word) else _URL_IN_LIST).sub(_bare_url, word)))
    for name, value in headers:
        if value and public_value(name, value) == MASK:
            there = re.compile(
                rf"((?:^|[=.]){re.escape(name)}\s*[:=]\s*){re.escape(redact(value))}(?![^,\s])", re.IGNORECASE
            )
            shown = [there.sub(rf"\g<1>{MASK}", word) for word in shown]
    return shown


def shell_secrets(text: str) -> frozenset[str]:
    """The values in a shell command of what its names say are credentials."""
    found = [(name, value.strip("\"' ")) for pattern in _IN_SHELL for name, value in pattern.findall(text)]
    # A variable of the environment is not its value.
    return sensitive_values((name, value) for name, value in found if not value.startswith("$"))


def public_shell(text: str) -> str:
    """A shell command without them: ``HF_TOKEN=...``, ``--api-key ...``, ``-H 'Authorization: ...'``,
    ``https://user:password@host``.
    """
    return redact(Redactor(shell_secrets(text)).redact(_USER.sub(f"://{MASK}@", text)))


def public_output(said: bytes | bytearray, limit: int) -> str:
    """The last ``limit`` characters of what a command of the user's said, without the credentials of its environment
    either.
    """
    held = Redactor(sensitive_values(os.environ.items()))
    text = public_shell(held.redact(bytes(said[-4 * limit :]).decode(errors="replace"))).strip()
    return text if len(text) <= limit else f"... {text[-limit:]}"


def expanded(text: str, where: str, errors: list[str]) -> str:
    """``text`` with its ``${env:NAME}`` and ``${file:PATH}`` resolved, of which the redactor learns."""
    secret: set[str] = set()
    found = _expand(text, where, os.environ, secret, errors)
    learn(secret)
    return found


def _bare_url(found: re.Match[str]) -> str:
    scheme, user, place, query = found.groups()
    return scheme + (f"{MASK}@" if user else "") + place + (f"?{MASK}" if query else "")


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
