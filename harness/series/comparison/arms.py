"""Arms: the endpoints that one comparison sets against each other, as a file or ``--arm`` names them.

An arm changes where the load goes and how it is addressed, never the load: a rate, a concurrency or a prompt length of
its own is refused, because then the difference would be the load's. Nothing is sent here, and no secret is read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, Field, ValidationError, field_validator, model_validator

from plimsoll.documents.text import plain
from plimsoll.harness.host.manifest import public_url
from plimsoll.scenarios.scenario import TargetSection
from plimsoll.scenarios.text.document import Document
from plimsoll.scenarios.text.fields import STRICT, FileName
from plimsoll.scenarios.text.problems import Place, problems

#: What stands for the bundled reference server where a URL is expected.
BUNDLED = "bundled"
_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"
#: A comma separates settings only where a setting follows it, so that a URL or a fault may hold one.
_COMMA = re.compile(r",(?=[a-z_]+(?:\.[A-Za-z0-9_-]+)?=)")

#: Of the bundled server, those that are neither numbers nor true or false.
_TEXTS = ("ttft", "itl", "fault", "preset", "device", "max_wait", "service", "window", "batching")

Positive = Annotated[float, Field(gt=0)]
Whole = Annotated[int, Field(ge=1)]


class BundledServer(BaseModel):
    """How the bundled reference server is started for an arm: the flags of ``plimsoll serve``."""

    model_config = STRICT
    ttft: str | None = Field(default=None, description="Time to first token (scripted).")
    itl: str | None = Field(default=None, description="Time between tokens (scripted).")
    fault: tuple[str, ...] = Field(default=(), strict=False, description="Scripted misfortunes.")
    preset: str | None = Field(default=None, description="Size of the llm.")
    device: Literal["auto", "cpu", "cuda"] | None = None
    max_batch: Whole | None = None
    max_wait: str | None = Field(default=None, description="Longest that a batch fills (fixed outputs).")
    step_tokens: Whole | None = Field(default=None, description="Most tokens in a step.")
    kv_blocks: Whole | None = None
    kv_cache: Literal["paged", "asked", "longest"] | None = Field(default=None, description="Room kept (llm).")
    prefix_cache: bool = Field(default=False, description="Reuse the KV blocks of equal prompt beginnings (llm).")
    batching: Literal["continuous", "static"] | None = Field(default=None, description="Of the llm.")
    image_side: Annotated[int, Field(ge=0)] | None = Field(default=None, description="Of resnet50, in pixels.")
    precision: Literal["float32", "int8"] | None = Field(default=None, description="Of resnet50 on a CPU.")
    resident: Whole | None = Field(default=None, description="Models of fixed outputs in memory at a time.")
    response_cache: Whole | None = Field(default=None, description="Answers to keep for the same request.")
    threads: Whole | None = None
    queue_limit: Whole | None = None
    in_flight: str | Whole | None = Field(default=None, description="Most requests under way; a time: by their p99.")
    slots: Whole | None = Field(default=None, description="Requests served at a time; others wait in line (scripted).")
    service: str | None = Field(default=None, description="constant, exponential, or of a batch: 5ms+0.6ms*B.")
    window: str | None = Field(default=None, description="none, static, dynamic, adaptive, or how long.")

    @field_validator("fault", mode="before")
    @classmethod
    def _one_or_many(cls, value: Any) -> Any:
        return (value,) if isinstance(value, str) else value

    def arguments(self) -> tuple[str, ...]:
        """As the reference server's own command line takes them."""
        words: list[str] = []
        for name in type(self).model_fields:
            value = getattr(self, name)
            flag = f"--{name.replace('_', '-')}"
            if isinstance(value, bool):
                words += [flag] * value
                continue
            for item in value if isinstance(value, tuple) else () if value is None else (value,):
                words += [flag, str(item)]
        return tuple(words)


class Arm(BaseModel):
    """One endpoint of a comparison. What is not given is as the scenario says."""

    model_config = STRICT
    name: str = Field(pattern=_NAME, max_length=40, description="Short: it names run directories and table rows.")
    url: str | None = Field(default=None, description="The endpoint, or `bundled`; absent: the scenario's own.")
    protocol: str | None = Field(default=None, min_length=1)
    model: str | None = None
    headers: dict[str, str] = Field(default_factory=dict, description="Extra request headers; no secrets.")
    headers_file: FileName | None = None
    api_key_env: str | None = Field(default=None, min_length=1)
    api_key_file: FileName | None = None
    options: dict[str, Any] = Field(default_factory=dict, description="The protocol's own options.")
    tls_verify: bool | None = None
    ca_file: FileName | None = None
    server: BundledServer = Field(default_factory=BundledServer, description="Of a bundled arm: how it is started.")
    price_per_hour: Positive | None = Field(default=None, description="Of the whole endpoint, in any one currency.")
    gpus: Whole | None = Field(default=None, description="Accelerators behind the endpoint.")

    @field_validator("url")
    @classmethod
    def _a_url_or_bundled(cls, url: str | None) -> str | None:
        if url not in (None, BUNDLED):
            _as_of_a_target(url=url)
        return url

    @field_validator("headers")
    @classmethod
    def _sendable(cls, headers: dict[str, str]) -> dict[str, str]:
        _as_of_a_target(headers=headers)  # refuses a secret in the clear
        return headers

    @model_validator(mode="after")
    def _server_only_if_ours(self) -> Arm:
        if self.server != BundledServer() and self.url != BUNDLED:
            raise ValueError(f"server settings are of the bundled server. Write url: {BUNDLED}, or take them out")
        return self

    def flags(self) -> dict[str, Any]:
        """The flags that put this arm over a scenario (see ``plimsoll.scenarios.flags``)."""
        plain = ("protocol", "model", "headers_file", "api_key_env", "api_key_file", "tls_verify", "ca_file")
        flags: dict[str, Any] = {name: getattr(self, name) for name in plain}
        return flags | {
            "url": None if self.url == BUNDLED else self.url,
            "headers": self.headers or None,
            "options": self.options or None,
        }


def _as_of_a_target(**given: Any) -> None:
    """Raise ValueError, in the same words, for what a scenario's target would refuse."""
    try:
        TargetSection.model_validate(given)
    except ValidationError as error:
        raise ValueError(str(error.errors()[0]["ctx"]["error"])) from None


def in_one_run(
    found: Document, of: str, urls: Mapping[str, str | None], shares: Mapping[str, Any], errors: list[str]
) -> bool:
    """Give a scenario these arms with their shares, the last of which names a URL; ``of``: for what. False, and an
    error, where it has others.
    """
    arms = found.get("arms") or {name: {} for name in urls}
    if not isinstance(arms, dict) or set(arms) != set(urls):
        errors.append(f"{found.where}: arms: a {of} has the arms {' and '.join(urls)}, and no other. Call them so")
        return False
    for name, url in urls.items():
        arm = arms[name] if isinstance(arms[name], dict) else {}
        target = {**(arm.get("target") or {}), **({"url": url} if url else {})}
        if name == of and "url" not in target:
            at = f"arms: {{{of}: {{target: {{url: ...}}}}}}"
            errors.append(f"--{of}: where is it? Give its URL, or {at} in the scenario")
        arms[name] = {**arm, **({"target": target} if target else {}), "share": shares[name]}
    found["arms"] = {name: arms[name] for name in urls}
    _check_paths(found, errors)
    return True


def _check_paths(found: Document, errors: list[str]) -> None:
    """One ``path`` for all arms takes the place of those of their URLs: two routes of a gateway would be one."""
    paths, urls = set[str](), list[str]()
    for arm in found["arms"].values():
        own = [one for one in (found.get("target"), arm.get("target")) if isinstance(one, dict)]
        options = [one["options"] for one in own if isinstance(one.get("options"), dict)]
        paths.add(str(next((one["path"] for one in options[::-1] if one.get("path")), "")))
        urls += [str(one["url"]) for one in own[::-1] if one.get("url")][:1]
    if len(paths) == 1 and "" not in paths and len({urlsplit(url).path.rstrip("/") for url in urls}) > 1:
        errors.append(
            f"{found.where}: target.options.path: {paths.pop()} takes the place of the paths of "
            f"{' and '.join(map(public_url, urls))}, which differ. Leave it out, or give each arm its own"
        )


def read_arms(texts: Sequence[str]) -> tuple[tuple[Arm, ...], list[str]]:
    """The arms that ``--arm`` texts name, and every error in them."""
    arms: list[Arm] = []
    errors: list[str] = []
    for text in texts:
        mapping, wrong = _mapping(text)
        where = f"--arm {mapping.get('name', '?')}"
        errors += [f"{where}: {what}" for what in wrong]
        try:
            arms.append(Arm.model_validate(mapping))
        except ValidationError as error:
            errors += [said for _, said in problems(error, Arm, Place(where))]
    return tuple(arms), errors + twice(arms, "--arm")


def twice(arms: Sequence[Arm], where: str) -> list[str]:
    """An error for each name that two arms have."""
    names = [arm.name for arm in arms]
    return [
        f"{where}: two arms are named {name!r}. Give each its own name"
        for name in dict.fromkeys(names)
        if names.count(name) > 1
    ]


def _mapping(text: str) -> tuple[dict[str, Any], list[str]]:
    """``NAME=URL,KEY=VALUE,...`` as the mapping that a file would hold.

    A value may be a mistyped secret: not repeated.
    """
    name, equals, rest = text.partition("=")
    mapping: dict[str, Any] = {"name": name.strip()}
    if not equals or not rest:
        return {"name": name.split(":")[0].strip()[:40]}, ["no endpoint. Write NAME=URL, NAME=bundled or NAME=model=M"]
    errors: list[str] = []
    for part in _COMMA.split(rest):
        key, equals, value = part.partition("=")
        if re.fullmatch(r"[a-z_]+(?:\.[A-Za-z0-9_-]+)?", key) is None or not equals:
            if "url" in mapping:
                errors.append("two endpoints, or a setting without a value. Write NAME=URL,KEY=VALUE")
            mapping["url"] = part.strip()
            continue
        errors += _set(mapping, key, value)
    return mapping, errors


def _set(mapping: dict[str, Any], key: str, text: str) -> list[str]:
    """One ``KEY=VALUE`` into the mapping: ``option.X`` and ``header.X`` go below, server settings too."""
    group, dot, below = key.partition(".")
    if key == "name":
        return ["name: the name stands before the first equals sign. Take this one out"]
    if dot:
        section = {"option": "options", "header": "headers"}.get(group)
        if section is None:
            return [f"{key}: only option.NAME and header.NAME have a dot"]
        value, error = (text, None) if section == "headers" else _yaml(text)
        mapping.setdefault(section, {})[below] = value
        return [f"{key}: {error}"] if error else []
    if key in BundledServer.model_fields:
        server = mapping.setdefault("server", {})
        value, error = (text, None) if key in _TEXTS else _yaml(text)
        server[key] = [*server.get(key, []), value] if key == "fault" else value
        return [f"{key}: {error}"] if error else []
    value, error = _yaml(text) if key in ("tls_verify", "price_per_hour", "gpus") else (text, None)
    mapping[key] = value
    return [f"{key}: {error}"] if error else []


def _yaml(text: str) -> tuple[Any, str | None]:
    try:
        return plain(text), None
    except ValueError:
        return None, "the value is not YAML. Quote it"


def public(arm: Arm, target: Mapping[str, Any]) -> dict[str, Any]:
    """The arm as it may be written down: its target as the masked scenario of a run holds it, its server and price."""
    document: dict[str, Any] = {"name": arm.name, "target": dict(target)}
    if arm.url == BUNDLED:
        document["server"] = list(arm.server.arguments())
    if arm.price_per_hour is not None:
        document["price_per_hour"] = arm.price_per_hour
    if arm.gpus is not None:
        document["gpus"] = arm.gpus
    return document
