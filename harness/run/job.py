"""From flags and files to a checked job: every error of the user's input at once, before anything is sent."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from plimsoll.documents import files
from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.generator.labels import mistakes
from plimsoll.harness.generator.native import why_not
from plimsoll.harness.host.manifest import public_url
from plimsoll.harness.process.writing import Output
from plimsoll.harness.protocols._discovery import outside, protocols, spoken_by
from plimsoll.harness.run import bundled, happenings, mixture, rundir
from plimsoll.harness.run.contradictions import check_accuracy, contradictions, unasked
from plimsoll.harness.run.coordinator import Job
from plimsoll.harness.run.judged import read_formats
from plimsoll.harness.run.promises import Asked, Promises, about, of_scenario, read_promises, undivided
from plimsoll.harness.run.rundir import RunDirectory
from plimsoll.harness.run.token_calibration import unmeasurable
from plimsoll.harness.secrecy.redaction import Redactor, learn
from plimsoll.harness.secrecy.secrets import (
    Headers,
    option_headers,
    public_command,
    public_shell,
    public_value,
    query_values,
    resolve,
    sensitive_values,
    url_secrets,
)
from plimsoll.harness.transport.client import ENGINES, MAX_OUTSTANDING, MAX_SPIN_NS, STAMPS, ProtocolSpec, Target
from plimsoll.harness.transport.endpoint import origin_of
from plimsoll.reports.blocks.section import sections
from plimsoll.scenarios.flags import COMMAND_LINE
from plimsoll.scenarios.plan.habits import GRPC, ClientSection
from plimsoll.scenarios.plugins import kinds
from plimsoll.scenarios.spec import Document, Scenario, ScenarioError, TargetSection, document, load, with_flags
from plimsoll.scenarios.text.fields import parse_duration
from plimsoll.scenarios.text.labels import fallback_of
from plimsoll.slo.metrics.indicator import tried
from plimsoll.slo.metrics.plugin import all_at_once
from plimsoll.slo.records.trace_ids import HEADER, address_error

#: Options of every target, whatever its protocol.
_COMMON_OPTIONS = (
    "engine", "max_connections", "max_outstanding", "request_id", "spin", "stamps", "trace_url", "traceparent",
)  # fmt: skip
#: The share of requests whose traceparent asks servers to record their trace, where nobody says another.
_SAMPLED = 0.01


@dataclass(frozen=True, slots=True)
class Prepared:
    """A job and what is to be made of its result."""

    job: Job
    promises: Promises
    outputs: tuple[Output, ...]


def hold(name: str | Document | None) -> Document | None:
    """The scenario's file as it is now: a series reads it once, so that every run of it is of the same scenario.

    Raises HarnessFault.
    """
    try:
        return None if name is None else document(name)
    except ScenarioError as error:
        raise HarnessFault(error.errors) from None


def find_scenario(name: str | Document | None, flags: Mapping[str, Any]) -> Scenario:
    """The named scenario with the flags over it. Raises ScenarioError with everything wrong with it."""
    if name is not None:
        return with_flags(load(name), **flags)
    known = protocols().get(flags.get("protocol") or "")
    return with_flags(None, **(flags if known is None else {**flags, "source": known.source}))


def prepare(
    scenario_name: str | Document | None,
    flags: Mapping[str, Any],
    slo: Sequence[str] | Asked,
    format_texts: Sequence[str],
    out: Path | None,
    command: Sequence[str] = (),
    calibrate_tokens: bool = False,
    found: Sequence[str] = (),
    allow_commands: bool = False,
) -> Prepared:
    """Check everything and make the run directory. Raises HarnessFault with every error found.

    ``slo``: what to judge against, or just the ``--slo`` texts; ``calibrate_tokens``: lengths are to be the endpoint's;
    ``found``: what is wrong with the flags that are not of the scenario; ``allow_commands``: events of a scenario that
    a run directory holds may run commands.
    """
    all_at_once([tried, sections])  # a broken plug-in that judges or reports is told of before anything is sent
    asked = slo if isinstance(slo, Asked) else Asked(slo=slo)
    promises, problems = read_promises(asked)
    errors = [*found, *problems]
    if asked.any_objective:
        flags = {**flags, "objectives": promises.texts}
    scenario = None
    try:
        scenario = find_scenario(scenario_name, flags)
    except ScenarioError as error:
        errors += error.errors
        if scenario_name is None:
            options = dict(flags.get("options") or {})
            problems = _options(COMMAND_LINE, flags.get("protocol") or "openai-chat", options)[1]
            errors += _lined(problems, COMMAND_LINE, None, flags)
        else:
            errors += errors_beyond(scenario_name, asked.any_objective)
    outputs, problems = read_formats(format_texts)
    errors += problems
    targets: dict[str, tuple[Target, Headers]] = {}
    if scenario is not None:
        promises, problems = check_promised(scenario, scenario_name, flags, asked, promises)
        errors += [*problems, *check_accuracy(scenario, promises.objectives)]
        errors += [] if asked.served else unasked(scenario, promises.objectives)
        events = _events(scenario, scenario_name, allow_commands, errors)
        for name, one in scenario.classes.items():
            target, headers, problems = _target(one, scenario.name)
            errors += _lined(_at_class(problems, scenario.name, name), scenario.name, scenario_name, flags)
            if target is not None and headers is not None:
                targets[name] = target, headers
        unmeasured = {name: unmeasurable(one) for name, one in scenario.classes.items()} if calibrate_tokens else {}
        for name, problems in unmeasured.items() if all(unmeasured.values()) else ():
            errors += [text.replace(": ", f": class {name}: ", 1) if name else text for text in problems]
    if errors or scenario is None or len(targets) < len(scenario.classes):
        raise HarnessFault(list(dict.fromkeys(errors)))
    job = _job(scenario, targets, rundir.create(out or default_out(scenario.name)), command or sys.argv)
    return Prepared(replace(job, calibrate_tokens=calibrate_tokens, events=events), promises, outputs)


def _events(
    scenario: Scenario, name: str | Document | None, allowed: bool, errors: list[str]
) -> tuple[happenings.Event, ...]:
    """The events of a scenario, ready. Whose file lies in a run directory wrote it there: its commands are run for who
    says so.
    """
    found, wrong = happenings.prepared(scenario, scenario.name)
    path = None if name is None else document(name).path
    own = path is not None and any((path.parent / held).is_file() for held in ("manifest.json", rundir.BEGUN))
    if own and not allowed and any(one.command for one in found):
        told = "is a run's own copy, and its events run commands. Read them, and add --allow-commands to run them"
        wrong.append(f"{path}: {told}")
    spoken = protocols().get(next(iter(scenario.classes.values())).target.protocol)
    for place, one in enumerate(scenario.events):
        if one.fault is not None and (spoken is None or not spoken.needs_url or spoken.grpc):
            told = "goes to the endpoint's own HTTP address, and this target has none. Use http: {url: ...}"
            wrong.append(f"{scenario.name}:events[{place}].fault: {told}")
    errors += wrong if name is None else document(name).placed(wrong)
    return found


def check_promised(
    scenario: Scenario, name: str | Document | None, flags: Mapping[str, Any], asked: Asked, promises: Promises
) -> tuple[Promises, list[str]]:
    """The promises of the flags, else the scenario's own, and every error in it but for what other flags and the host
    decide: URL, secrets, mode, whom to ask.
    """
    errors: list[str] = []
    if not asked.any_objective:
        promises, errors = of_scenario(scenario.name, promised(scenario), asked)
        errors += _undivided(scenario)
    if any(one.mode == "accuracy" for one in scenario.classes.values()):
        errors += check_accuracy(scenario, promises.objectives)
    errors += contradictions(scenario, promises.objectives)
    for part, one in scenario.classes.items():
        problems = _at_class(_check_target(scenario.name, one, encode=False), scenario.name, part)
        errors += _lined(problems, scenario.name, name, flags)
    return promises, errors


def promised(scenario: Scenario) -> list[str]:
    """The objectives of a scenario, those of its classes and phases about each of them alone. What can't be read stays
    as it is.
    """
    parts = [("class", name, one.objectives) for name, one in scenario.mix.items()]
    parts += [("phase", name, one.objectives) for name, one in scenario.phases.items()]
    own = (part for label, name, texts in parts for text in texts for part in about(text, name, label))
    return [*scenario.objectives, *own]


def _undivided(scenario: Scenario) -> list[str]:
    parts = [(f"mix.{name}", f"class={name}", text) for name, one in scenario.mix.items() for text in one.objectives]
    parts += [(f"phases.{name}", f"phase={name}", text) for name, one in scenario.phases.items()
              for text in one.objectives]  # fmt: skip
    return [f"{scenario.name}:{said}" for one in parts for said in undivided(*one)]


def _at_class(errors: Sequence[str], where: str, name: str) -> list[str]:
    """Errors at ``where`` of a class, "" for none, at their place in the mix."""
    keys = re.compile(rf"{re.escape(where)}: ?(?=(?:target|labels)\b)")
    if name:
        errors = [keys.sub(f"{where}:mix.{name}.", text) for text in errors]
        return [re.sub(rf"^{re.escape(where)}: ", f"{where}: class {name}: ", text) for text in errors]
    return list(errors)


def _job(
    scenario: Scenario, targets: Mapping[str, tuple[Target, Headers]], directory: RunDirectory, command: Sequence[str]
) -> Job:
    """The run, and of a mix each class as one."""
    sections = [one.target for one in (*scenario.classes.values(), scenario)]
    literal = [pair for one in sections for pair in (*one.headers.items(), *option_headers(one.options))]
    words = [word for one in sections for word in (one.model, one.protocol)]
    shown = public_command(command, literal, [one.url or "" for one in sections], words)
    hidden = Redactor(frozenset().union(*(_hidden(one, targets[name][1]) for name, one in scenario.classes.items())))
    jobs = {}
    for name, one in scenario.classes.items():
        target, place = targets[name][0], directory.path / mixture.FOLDER / name if name else directory.path
        server = _bundled(one, protocols()[target.protocol])
        jobs[name] = Job(one, _public(one, hidden), target, RunDirectory(place), shown, server)
    if not scenario.mix:
        return jobs[""]
    first = next(iter(jobs.values()))
    models = dict.fromkeys(job.bundled[1] for job in jobs.values() if job.bundled)
    more = next((job.bundled[2:] for job in jobs.values() if job.bundled and job.bundled[2:]), ())
    both = (*(word for model in models for word in ("--model", model)), *more) if models else None
    return Job(scenario, _public(scenario, hidden), first.target, directory, shown, both, classes=jobs)


#: What of the scenario is held against its protocol, beside the target.
_KEYS = r"labels\.|client\.|params\.|degraded:"


def _lined(errors: list[str], where: str, name: str | Document | None, flags: Mapping[str, Any]) -> list[str]:
    """Errors of the target at ``where`` with the flag that gave what is wrong, or with the file and the line."""
    found: list[str] = []
    options = flags.get("options") or {}
    for text in errors:
        begin = re.match(rf"{re.escape(where)}: ?target\.(\w+)(?:\.(\w+))?", text)
        if begin is None and name is not None and re.match(_KEYS, text.removeprefix(f"{where}:")):
            written = document(name)
            found += written.placed([written.where + text[len(where) :]])
        elif begin is None:
            found.append(text)
        elif name is not None and (flags.get(begin[1]) is None or (begin[1] == "options" and begin[2] not in options)):
            written = document(name)
            found += written.placed([written.where + text[len(where) :]])
        elif begin[1] == "options" and begin[2]:
            found.append(f"--option {begin[2]}{text[begin.end() :]}")
        else:
            found.append(f"--{begin[1].replace('_', '-')}{text[begin.start(1) + len(begin[1]) :]}")
    return found


def traces_error(address: Any) -> str | None:
    """What is wrong with an address of traces, which every report shows as it is."""
    private = url_secrets(address) if isinstance(address, str) else frozenset[str]()
    learn(private)
    if private:
        return "it holds a credential, and every report would show it. Leave that out: whoever follows a link signs in"
    return address_error(address)


def errors_beyond(scenario_name: str | Document, slo_given: bool) -> list[str]:
    """What a scenario file that does not even parse gets wrong besides: its objectives and its protocol's options."""
    try:
        raw = document(scenario_name)
    except ScenarioError:
        return []
    errors: list[str] = []
    listed = raw.get("objectives")
    if isinstance(listed, list) and not slo_given:
        errors += of_scenario(raw.where, [text for text in listed if isinstance(text, str)])[1]
    section = raw.get("target")
    if isinstance(section, dict):
        options, url, ca_file = (section.get(name) for name in ("options", "url", "ca_file"))
        given = options if isinstance(options, dict) else {}  # what is no mapping is reported with the whole
        errors += _options(raw.where, section.get("protocol", "openai-chat"), given)[1]
        if isinstance(url, str | None) and isinstance(ca_file, str | None):
            errors += _place(raw.where, url, ca_file)
    return raw.placed(errors)


def _hidden(scenario: Scenario, headers: Headers) -> frozenset[str]:
    """Every text that is a credential: of the target's headers, the protocol's own, and what a URL's query holds."""
    hedge = scenario.client.hedge if scenario.client is not None else None
    urls = [url for url in (scenario.target.url, None if hedge is None else hedge.to) if url]
    own = sensitive_values(option_headers(scenario.target.options))
    return headers.secret_values.union(own, *map(query_values, urls), *map(url_secrets, urls))


def _public(scenario: Scenario, hidden: Redactor) -> dict[str, Any]:
    """The scenario as it may be written down: without credentials and headers that may hold some."""
    plain = scenario.to_mapping()
    found = _masked(plain, hidden)
    if scenario.mix:
        found["mix"] = {name: _masked(one, hidden) for name, one in plain["mix"].items()}
    return found


def _masked(plain: Mapping[str, Any], hidden: Redactor) -> dict[str, Any]:
    mapping: dict[str, Any] = hidden.masked(plain)
    for one in mapping.get("events", ()):
        one["run"] = one["run"] and public_shell(one["run"])
        if one["http"]:
            headers = {name: public_value(name, text) for name, text in one["http"]["headers"].items()}
            one["http"] |= {key: public_shell(one["http"][key]) for key in ("url", "body")} | {"headers": headers}
    # Our own words, whatever a key is called.
    mapping |= {name: plain[name] for name in ("kind", "mode", "params") if name in plain}
    target, options = mapping["target"], mapping["target"].get("options") or {}
    target["protocol"] = plain["target"]["protocol"]
    if "source" in plain:
        mapping["source"]["kind"] = plain["source"]["kind"]
    if target.get("url"):
        target["url"] = public_url(plain["target"]["url"])
    if to := ((plain.get("client") or {}).get("hedge") or {}).get("to"):
        mapping["client"]["hedge"]["to"] = public_url(to)
    for place, name in ((target, "headers"), (options, "headers"), (options, "metadata")):
        if isinstance(place.get(name), dict):
            place[name] = {key: public_value(str(key), str(value)) for key, value in place[name].items()}
    return mapping


def public_scenario(scenario: Scenario) -> dict[str, Any]:
    """The scenario as it may be written down on this host, whose environment and files its references name."""
    headers, _ = resolve(scenario.target.model_dump())
    return _public(scenario, Redactor(_hidden(scenario, headers)))


def _options(where: str, protocol: Any, given: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The options that are everybody's, and every error in all of them."""
    known = protocols()
    if not isinstance(protocol, str):
        return {}, []  # said already: it is no text
    if protocol not in known:
        near = get_close_matches(protocol, known, n=3)
        hint = f"Did you mean {' or '.join(near)}?" if near else f"Use one of {', '.join(sorted(known))}"
        if spoken := spoken_by(protocol):
            hint = f"{protocol} names a server, and a protocol is what is sent to it. Give one of {', '.join(spoken)}"
        for error in outside().errors:
            _warn(str(error))
        return {}, [f"{where}:target.protocol: {protocol!r:.60} is unknown. {hint}"]
    options = dict(given)
    common = {name: options.pop(name) for name in _COMMON_OPTIONS if name in options}
    errors = [f"{where}: {text}" for text in known[protocol].check(options)]
    for name in ("max_connections", "max_outstanding"):
        limit = common.get(name, 1)
        if not isinstance(limit, int) or isinstance(limit, bool) or limit < 1:
            errors.append(f"{where}:target.options.{name}: {limit!r} is not a whole number from 1 up")
    if not isinstance(common.get("request_id", True), bool):
        errors.append(f"{where}:target.options.request_id: write true or false")
    try:
        common["traceparent"] = _sampled(common.get("traceparent", True))
    except ValueError as error:
        errors.append(f"{where}:target.options.traceparent: {error}")
    if problem := traces_error(common.get("trace_url", "")):
        errors.append(f"{where}:target.options.trace_url: {problem}")
    if common.get("engine", "auto") not in ENGINES:
        errors.append(f"{where}:target.options.engine: {common['engine']!r} is none of {', '.join(ENGINES)}")
    if common.get("stamps", "kernel") not in STAMPS:
        errors.append(f"{where}:target.options.stamps: {common['stamps']!r} is none of {', '.join(STAMPS)}")
    try:
        common["spin"] = None if common.get("spin", "auto") == "auto" else parse_duration(common["spin"])
        if common["spin"] is not None and common["spin"] > MAX_SPIN_NS:
            errors.append(f"{where}:target.options.spin: more than {MAX_SPIN_NS // 1000} us burns the core. Write less")
    except ValueError as error:
        errors.append(f"{where}:target.options.spin: {error}")
    return common, errors


def _sampled(said: Any) -> float | None:
    """The share of requests to sample; None: they get no trace context. Raises ValueError."""
    if isinstance(said, bool):
        return _SAMPLED if said else None
    percent = isinstance(said, str) and said.endswith("%")
    try:
        share = float(said[:-1]) / 100 if percent else float(said)
    except (TypeError, ValueError):
        share = -1.0
    if not 0 <= share <= 1:
        raise ValueError(f"{said!r:.60} is no share of requests. Write for example 10%, or false for no traceparent")
    return share


@cache
def _warn(text: str) -> None:
    """Once, however often the options are read."""
    print(f"warning: {text}", file=sys.stderr)


def _own(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that are the protocol's own."""
    return {name: value for name, value in options.items() if name not in _COMMON_OPTIONS}


def check_file(name: str, *, encode: bool = True) -> Scenario:
    """A scenario file or library scenario with everything in it checked, with ``encode`` its payloads too; secrets may
    be missing. Sends nothing. Raises HarnessFault with every error found.
    """
    raw: str | Document = name
    try:
        raw = document(name)
        scenario = load(raw)
    except ScenarioError as error:
        raise HarnessFault(error.errors + errors_beyond(raw, slo_given=False)) from None
    promises, errors = of_scenario(name, promised(scenario))
    errors += [*_undivided(scenario), *contradictions(scenario, promises.objectives)]
    for part, one in scenario.classes.items():
        errors += _at_class(_check_target(name, one, encode), name, part)
    if errors:
        raise HarnessFault(document(raw).placed(errors))
    return scenario


def _check_target(where: str, scenario: Scenario, encode: bool) -> list[str]:
    """Every error in where a load goes, and with ``encode`` in what."""
    section = scenario.target
    found = _options(where, section.protocol, section.options)[1] + _place(where, section.url, section.ca_file)
    found += _unsaid(where, scenario)
    if not found and encode:
        target = Target(section.url or "http://127.0.0.1:1", section.protocol, "m", options=_own(section.options))
        try:
            client = protocols()[target.protocol].build(target, None)
            source = scenario.source_object()
            for index in range(min(len(source), 1000)):
                client.encode(source.payload(index))
        except (HarnessFault, ScenarioError) as error:
            found += [f"{where}: {text}" for text in error.errors]
    return found


def _unsaid(where: str, scenario: Scenario) -> list[str]:
    """Labels that no answer of this protocol can have, and habits that no client of it."""
    spoken = protocols().get(scenario.target.protocol)
    if spoken is None:
        return []
    found = mistakes(scenario.labels or {}, spoken)
    if scenario.degraded is not None:
        wrong = mistakes({"degraded": fallback_of(scenario.degraded)[0]}, spoken)
        found += [text.removeprefix("labels.") for text in wrong]
    found += _unimpaired(scenario, spoken)
    section = scenario.client
    again = kinds()[scenario.kind].again(scenario.params)
    found += [] if section is None else _no_habits(section, again, spoken, scenario.target.options)
    to = section.hedge.to if section is not None and section.hedge is not None else None
    if to and urlsplit(to).username is not None:
        found.append("client.hedge.to: it holds a user name or password. Use target.headers or api_key_env")
    return [f"{where}:{text}" for text in found] + (_place(where, to, None) if to else [])


def _live(scenario: Scenario) -> bool:
    """It sends frames of audio as they are spoken."""
    return getattr(scenario.source, "kind", "") == "audio" and not protocols()[scenario.target.protocol].repeats


def _unimpaired(scenario: Scenario, spoken: ProtocolSpec) -> list[str]:
    """What of ``impair`` can't be honoured."""
    if scenario.impair is None:
        return []
    if not spoken.needs_url:
        return [f"impair: {spoken.name} sends nothing over a network. Use another protocol, or leave it out"]
    if scenario.impair.duplicate and not _live(scenario):
        return ["impair.duplicate: TCP drops what comes twice. It is for frames of live audio: leave it out"]
    return []


def _no_habits(section: ClientSection, again: bool, spoken: ProtocolSpec, options: Mapping[str, Any]) -> list[str]:
    """Habits that no client of this protocol can have. ``again``: the scenario's kind wants one that retries."""
    why = f"an exchange of {spoken.name} can't be sent again or dropped for another"
    able = "a protocol over HTTP/1.1 or gRPC without live speech (openai-chat, http, tgi, grpc, ...)"
    found = [
        f"{'params.on_failure' if again and key == 'retry' else f'client.{key}'}: {why}. Use {able}, or leave it out"
        for key in ("retry", "hedge", "patience")
        if not spoken.repeats and getattr(section, "patience_ns" if key == "patience" else key) is not None
    ]
    if section.connections == "fresh" and (spoken.grpc or not spoken.repeats):
        why = f"calls of {spoken.name} share connections" if spoken.grpc else f"{why} on a connection of its own"
        found.append(
            f"client.connections: {why}. Use a protocol over HTTP/1.1 (openai-chat, http, ...), or leave it out"
        )
    foreign = "gRPC's, and {name} answers with codes of HTTP. Write {code}"
    found += [
        f"client.retry.on: {one} is {foreign.format(name=spoken.name, code=GRPC[str(one)])}"
        for one in (section.retry.on if section.retry is not None and not spoken.grpc else ())
        if one in GRPC
    ]
    if section.habitual and options.get("engine") == "native":
        given = "params.on_failure" if again else "client"
        found.append(f"target.options.engine: the native engine has no habits, and {given} gives some. Leave one out")
    return found


def _place(where: str, url: str | None, ca_file: str | None) -> list[str]:
    """What is wrong with the URL and the certificates, whatever else is."""
    errors: list[str] = []
    tls = False
    if url is not None and "://" in url:  # else the scenario's own check says that it is none
        try:
            tls = origin_of(url).tls
        except HarnessFault as fault:
            return [f"{where}:{text}" for text in fault.errors]
    if ca_file is None:
        return errors
    if not tls:
        what = (
            f"{url.partition(':')[0]}:// has no certificates to check"
            if url
            else "the bundled server has no certificate"
        )
        errors.append(f"{where}:target.ca_file: {what}. Give a URL with https, wss or grpcs, or leave it out")
    try:
        files.opened(Path(ca_file)).close()
    except OSError as error:
        errors.append(f"{where}:target.ca_file: {ca_file} can't be read ({files.why(error)}). Give a PEM file")
    return errors


def target_of(scenario: Scenario) -> Target:
    """Where a scenario sends, its secrets resolved on this host. Raises HarnessFault with every error found."""
    target, _, errors = _target(scenario)
    if target is None or errors:
        raise HarnessFault(errors)
    return target


def _target(scenario: Scenario, where: str = "") -> tuple[Target | None, Headers | None, list[str]]:
    """``where``: what errors begin with, instead of its name."""
    section, where = scenario.target, where or scenario.name
    learn(url_secrets(section.url or ""))  # before an error names the URL
    common, errors = _options(where, section.protocol, section.options)
    errors += _unspoken(section, where)
    errors += _place(where, section.url, section.ca_file)
    errors += _unsaid(where, scenario)
    headers, problems = resolve(section.model_dump())
    errors += [f"{where}: {text}" for text in problems]
    if errors:
        return None, headers, errors
    given = {name.lower() for name, _ in (*headers.pairs, *option_headers(section.options))}
    target = Target(
        url=section.url or "http://127.0.0.1:0",
        protocol=section.protocol,
        model=section.model,
        headers=headers.pairs,
        options=_own(section.options),
        timeout_ns=scenario.timeout_ns,
        connect_timeout_ns=scenario.connect_timeout_ns,
        tls_verify=section.tls_verify,
        ca_file=section.ca_file,
        max_connections=common.get("max_connections"),
        send_request_id=common.get("request_id", True),
        traceparent=None if HEADER in given else common["traceparent"],
        max_outstanding=common.get("max_outstanding", MAX_OUTSTANDING),
        engine=common.get("engine", "auto"),
        stamps=common.get("stamps", "kernel"),
        spin_ns=common["spin"],
        fresh=scenario.client is not None and scenario.client.connections == "fresh",
        impair=None if scenario.impair is None else scenario.impair.model(scenario.seed, _live(scenario)),
        secrets=tuple(sorted(headers.secret_values)),
    )
    reason = why_not(target, protocols()[target.protocol].needs_url) if target.engine == "native" else None
    return target, headers, [f"{where}:{reason}"] if reason else []


def _unspoken(section: TargetSection, name: str) -> list[str]:
    """Why the bundled server can't stand in for a missing URL: it lacks the protocol, or no route is named."""
    known = protocols()
    spec = known.get(section.protocol)
    if section.url is not None or spec is None or not spec.needs_url:
        return []
    where = f"{name}:target"
    if not spec.bundled:
        like = ", ".join(sorted(name for name, other in known.items() if other.bundled and other.source == spec.source))
        instead = f", or try one that it does: {like}" if like else ""
        return [
            f"{where}.url: the bundled server does not speak {spec.name}. Give the URL of a server that does "
            f"(--url){instead}"
        ]
    if spec.any_route and "path" not in section.options:
        return [
            f"{where}.url: no URL and no route. Give --url, or --option path=/v1/... for one of the bundled server's"
        ]
    return []


def _bundled(scenario: Scenario, protocol: ProtocolSpec) -> tuple[str, ...] | None:
    if scenario.target.url is not None or not protocol.needs_url:
        return None
    model = scenario.target.model or protocol.bundled_model or bundled.default_model()
    voice = ("--model", "synthesiser") if protocol.speaks(scenario.target.options) else ()
    return ("--model", model, *voice, *(("--grpc-port", "0") if protocol.grpc else ()))


def default_out(name: str, below: Path = Path("runs")) -> Path:
    """A folder of its own ``below``."""
    safe = re.sub(r"[^A-Za-z0-9._-]+", "-", name) or "run"
    stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
    path = below / f"{safe}-{stamp}"
    number = 2
    while path.exists():
        path = below / f"{safe}-{stamp}-{number}"
        number += 1
    return path
