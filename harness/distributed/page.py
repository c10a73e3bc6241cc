"""The door before Locust's page, whose Start is a run of ours: who may ask, and what of a form goes through. WSGI.

Locust's page answers every site that a browser has open, and its start form may change any option of the process. So
requests for another host or from another origin are refused; what changes something needs the token that the page
itself was given; of the start form only the fields of ``FORM`` pass, each in its own shape. No address, no path, no
reference and no flag comes from a browser. Locust is not imported.
"""

from __future__ import annotations

import hmac
import io
import json
import re
import secrets
import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qsl, urlencode

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.live.visitors import Visitors
from plimsoll.slo.objectives import objective

PREFIX = "plimsoll_"


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of the locustfile. ``flag``: of ``plimsoll run`` ("" for its scenario); ``many``: words that each
    get the flag; ``form``: a field of the start form too.
    """

    name: str
    flag: str
    help: str
    many: bool = False
    form: bool = False


#: What the locustfile adds to Locust's command line; some also to its start form.
ARGUMENTS = (
    Argument("scenario", "", "A scenario file on the master, or the name of a library scenario."),
    Argument("url", "--url", "The endpoint (default: Locust's host)."),
    Argument("protocol", "--protocol", "How to talk to it, e.g. openai-chat."),
    Argument("model", "--model", "Model name to ask for."),
    Argument("rate", "--rate", "Queries per second of all agents together.", form=True),
    Argument("concurrency", "--concurrency", "Requests in flight of all agents together.", form=True),
    Argument("duration", "--duration", "Issue for at least this long: 20s, 5m.", form=True),
    Argument(
        "slo",
        "--slo",
        "Objectives, separated by semicolons: p99(ttft) <= 500ms; p99(tpot) <= 50ms",
        many=True,
        form=True,
    ),
    Argument("workers", "--workers", "Load-generating processes of all agents together."),
    Argument("out", "--out", "Run directory on the master (default: runs/NAME-TIME)."),
    Argument("flags", "*", "Anything else that `plimsoll run` takes. No secrets: Locust sends it to every worker."),
)


_NUMBER = re.compile(r"\d{1,9}(?:\.\d{1,9})?")
_DURATION = re.compile(r"(?:\d{1,9}(?:\.\d{1,9})?\s?(?:ns|us|ms|s|m|h|d)?\s?){1,4}")
#: What a browser may say: Locust's own fields, which load nothing, and ours, each with its shape.
FORM = {
    "user_count": re.compile(r"0*\d{1,4}"),
    "spawn_rate": _NUMBER,
    "run_time": _DURATION,
    f"{PREFIX}rate": _NUMBER,
    f"{PREFIX}concurrency": re.compile(r"\d{1,9}"),
    f"{PREFIX}duration": _DURATION,
    f"{PREFIX}slo": re.compile(r"[^\x00-\x1f]{0,4000}"),
}


def of_form(fields: Mapping[str, str], given: Mapping[str, Any], host: str) -> dict[str, str]:
    """The named fields of a start form; others, which Locust's own page sends too, are left out. ``given`` and ``host``
    are the command line's, and may be repeated. Raises HarnessFault for one of ours that only the command line has, for
    another host than its, and for what has not the shape of its field.
    """
    faults = []
    kept = {}
    for name, text in fields.items():
        value = text.strip()
        known = name.startswith(PREFIX) and value == str(given.get(name) or "").strip()
        if name == "host":
            if value and value.rstrip("/") != host.rstrip("/"):
                faults.append("the host is the command line's: start Locust with --host URL")
        elif name in FORM:
            kept[name] = value
            if value and not known and not _fits(name, value):
                faults.append(f"{name.removeprefix(PREFIX)}: {value[:60]!r} is nothing that the start form takes")
        elif name.startswith(PREFIX) and not known:
            faults.append(f"{name.removeprefix(PREFIX)} is the command line's: start Locust with {_spelt(name)}")
    if faults:
        raise HarnessFault(faults)
    return kept


def _spelt(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _fits(name: str, value: str) -> bool:
    if not FORM[name].fullmatch(value):
        return False
    wanted = [text for text in map(str.strip, value.split(";")) if text] if name == f"{PREFIX}slo" else []
    return not objective.parse_all(wanted)[1]


def chosen(given: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a start: the command line's (``given``), with what its form changed since (``now``), of the form's
    fields only.

    Raises HarnessFault as ``of_form`` does.
    """
    changed = {name: str(now.get(name) or "") for name in FORM if name.startswith(PREFIX) and name in now}
    return {**given, **of_form(changed, given, "")}


def command(options: Mapping[str, Any], host: str | None, agents: int, pipes: tuple[int, int]) -> list[str]:
    """The arguments of ``python -m plimsoll.harness``. ``options``: Locust's parsed options. Raises HarnessFault."""
    given = {one.name: str(options.get(PREFIX + one.name) or "").strip() for one in ARGUMENTS}
    given["url"] = given["url"] or (host or "").strip()
    try:
        more = shlex.split(given.pop("flags"))
    except ValueError as error:
        raise HarnessFault(f"--plimsoll-flags: {error}. Quote it as a shell would") from None
    words = ["run", *([given["scenario"]] if given["scenario"] else [])]
    for one in ARGUMENTS[1:-1]:
        values = given[one.name].split(";") if one.many else [given[one.name]]
        words += [f"{one.flag}={value}" for value in map(str.strip, values) if value]
    return [*words, *more, f"--locust-master=fd:{pipes[0]},{pipes[1]}", f"--expect-workers={agents}"]


# -- the door ------------------------------------------------------------------------------------------------------

#: The longest form that is read, in bytes.
FORM_LIMIT = 64 * 1024
Environ = dict[str, Any]
Begin = Callable[..., Any]
Application = Callable[[Environ, Begin], Iterable[bytes]]


class Door:
    """``application`` behind it. ``given``: the options of the command line; ``host``: the endpoint that they name."""

    def __init__(
        self, application: Application, visitors: Visitors, given: Mapping[str, Any] | None = None, host: str = ""
    ) -> None:
        self._application, self._visitors = application, visitors
        self._given, self._host = dict(given or {}), host
        self._base = str(self._given.get("web_base_path") or "").rstrip("/")
        self._token = secrets.token_urlsafe(24)

    def __call__(self, environ: Environ, begin: Begin) -> Iterable[bytes]:
        refusal = self._visitors.refusal(lambda name: environ.get(f"HTTP_{name.upper().replace('-', '_')}"))
        method = environ["REQUEST_METHOD"]
        if refusal is None and method not in ("GET", "HEAD"):
            refusal = self._change(environ, method)
        if refusal is not None:
            return _answer(begin, "403 Forbidden", "text/plain; charset=utf-8", refusal)
        if method == "POST" and environ.get("PATH_INFO") == f"{self._base}/swarm":
            try:
                self._filter(environ)
            except HarnessFault as fault:  # Locust's page shows such a message
                said = {"success": False, "message": "; ".join(fault.errors), "host": self._host}
                return _answer(begin, "200 OK", "application/json", json.dumps(said))
        return self._application(environ, self._marked(environ, begin))

    def _cookie(self, environ: Environ) -> str:
        return f"plimsoll-page-{environ.get('SERVER_PORT', '')}"  # cookies of a host are shared by its ports

    def _change(self, environ: Environ, method: str) -> str | None:
        """Why a request that would change something is refused."""
        if method != "POST" or environ.get("PATH_INFO") == f"{self._base}/user":
            return "Nothing here can be changed that way\n"
        try:
            given = SimpleCookie(environ.get("HTTP_COOKIE", "")).get(self._cookie(environ))
        except CookieError:
            given = None
        if given is None or not hmac.compare_digest(given.value.encode(), self._token.encode()):
            return "The page's token is missing or of an earlier start. Load the page again\n"
        return None

    def _filter(self, environ: Environ) -> None:
        """Only named fields of the form, each in its own shape. Raises HarnessFault."""
        try:
            length = int(environ.get("CONTENT_LENGTH") or 0)
        except ValueError:
            length = -1
        plain = str(environ.get("CONTENT_TYPE", "")).partition(";")[0].strip() == "application/x-www-form-urlencoded"
        if not plain or not 0 <= length <= FORM_LIMIT:
            raise HarnessFault(f"the start form can't be read: it is no URL-encoded form of at most {FORM_LIMIT} bytes")
        text = environ["wsgi.input"].read(length).decode("utf-8", "replace")
        try:
            fields = dict(parse_qsl(text, keep_blank_values=True, max_num_fields=200))
        except ValueError:
            raise HarnessFault("the start form has too many fields") from None
        body = urlencode(of_form(fields, self._given, self._host)).encode()
        environ["wsgi.input"], environ["CONTENT_LENGTH"] = io.BytesIO(body), str(len(body))

    def _marked(self, environ: Environ, begin: Begin) -> Begin:
        """Answers to nobody else's pages, in nobody else's frame; a page of HTML gets the token."""

        def marked(status: str, headers: Iterable[tuple[str, str]], *more: Any) -> Any:
            kept = [one for one in headers if not one[0].lower().startswith("access-control-")]
            kept += [("X-Frame-Options", "DENY"), ("X-Content-Type-Options", "nosniff")]
            if any(name.lower() == "content-type" and value.startswith("text/html") for name, value in kept):
                cookie = f"{self._cookie(environ)}={self._token}; Path=/; HttpOnly; SameSite=Strict"
                kept.append(("Set-Cookie", cookie))
            return begin(status, kept, *more)

        return marked


def _answer(begin: Begin, status: str, kind: str, text: str) -> Iterable[bytes]:
    body = text.encode()
    begin(status, [("Content-Type", kind), ("Content-Length", str(len(body))), ("X-Content-Type-Options", "nosniff")])
    return [body]


def close(page: Any, named: str, given: Mapping[str, Any] | None = None, host: str | None = None) -> None:
    """Put the door before a page of Locust's that serves nothing yet. ``named``: more names of it, separated by commas;
    ``given``: the options of the command line; ``host``: Locust's there.
    """
    if page is None:
        return
    allowed = str(host or (given or {}).get(f"{PREFIX}url") or "")
    page.app.wsgi_app = Door(page.app.wsgi_app, Visitors(page.host, named.split(",")), given, allowed)
