"""The command line: verbs over run directories. stdout is the result, stderr is progress and errors.

Exit codes: 0 pass, 1 an objective failed, 2 usage or configuration, 3 inconclusive, 4 invalid run, 5 endpoint
unreachable, 130 interrupted.
"""

from __future__ import annotations

import re
import sys
import traceback
from importlib import import_module
from inspect import cleandoc
from keyword import iskeyword
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.exit_codes import ExitCode
from plimsoll.harness.process import interrupts
from plimsoll.harness.secrecy.redaction import Guarded
from plimsoll.harness.verbs.flags import Verb

#: verb -> the file with its flags, in the order in which the help lists them. A verb's file holds nothing that
#: computes.
VERBS = {
    **dict.fromkeys(("run", "agent", "replay"), "run"),
    "import": "import_",
    "plan": "plan",
    **dict.fromkeys(("gate", "report"), "gate"),
    **dict.fromkeys(("compare", "bakeoff", "canary", "shadow"), "compare"),
    "search": "search",
    **dict.fromkeys(("sweep", "capacity", "overload"), "sweep"),
    "coldstart": "coldstart",
    "slo": "slo",
    **dict.fromkeys(("serve", "readiness", "hook"), "serve"),
    **dict.fromkeys(("calibrate", "metrics"), "calibrate"),
    "scenarios": "scenarios",
}
#: A defect in Plimsoll itself (sysexits.h EX_SOFTWARE): none of the verdicts' codes.
INTERNAL = 70


class _Verbs(TyperGroup):
    """The verbs; a flag that takes no value shows none in the help."""

    def get_params(self, ctx: Any) -> Any:
        """Of the command line itself."""
        return _without_values(super().get_params(ctx))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """A verb, or a group of them."""
        found = super().get_command(ctx, cmd_name)
        for one in (found, *getattr(found, "commands", {}).values()) if found is not None else ():
            _without_values(one.get_params(ctx))
        return found


def _without_values(parameters: Any) -> Any:
    for one in parameters:
        if getattr(one, "is_flag", False):
            one.metavar = ""
    return parameters


def _version(value: bool) -> None:
    if value:
        from plimsoll.harness.host.manifest import package_version

        typer.echo(f"plimsoll {package_version()}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Load testing and SLO conformance for inference endpoints: true latencies, honest verdicts."""


def command_line(verb: str | None = None) -> typer.Typer:
    """All verbs, or the one that is the first word of a command line: the files of the others are not needed then."""
    app = typer.Typer(
        cls=_Verbs,
        name="plimsoll",
        help="Load testing and SLO conformance for inference endpoints: true latencies, honest verdicts.",
        no_args_is_help=True,
        add_completion=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_root)
    for name in [verb] if verb in VERBS else VERBS:
        file = import_module(f"plimsoll.harness.verbs.{VERBS[name]}")
        found = getattr(file, f"{name}_" if iskeyword(name) else name)
        if isinstance(found, typer.Typer):
            app.add_typer(found, name=name)
        else:
            # The list of verbs keeps a line's end as it is.
            text = re.sub(r"(?<!\n)\n(?!\n)", " ", cleandoc(found.__doc__))
            app.command(name, cls=getattr(file, "Command", None), help=text)(found)
    inside = [group.typer_instance.registered_commands for group in app.registered_groups if group.typer_instance]
    for command in sum(inside, app.registered_commands):
        command.cls = command.cls if issubclass(command.cls or Verb, Verb) else Verb
    return app


def main() -> None:
    """Entry point of the ``plimsoll`` command: errors become one clear message each and an exit code."""
    from plimsoll.scenarios.text.document import ScenarioError
    from plimsoll.slo.metrics.plugin import PluginError

    sys.stderr = Guarded(sys.stderr)
    try:
        command_line(sys.argv[1] if len(sys.argv) > 1 else None)()
    except (ScenarioError, PluginError) as error:
        _complain(error.errors)
        sys.exit(ExitCode.USAGE)
    except HarnessFault as fault:
        _complain(fault.errors)
        sys.exit(fault.code)
    except KeyboardInterrupt:
        _interrupted()
        sys.exit(ExitCode.INTERRUPTED)
    except SystemExit as end:
        if isinstance(getattr(end.__context__, "__cause__", None), KeyboardInterrupt):  # Typer says no word of it
            _interrupted()
        raise
    except Exception as error:  # noqa: BLE001 - the interpreter's own exit code, 1, would say that an objective failed
        if isinstance(error.__cause__, KeyboardInterrupt):  # pydantic makes an error of its own of it
            _interrupted()
            sys.exit(ExitCode.INTERRUPTED)
        traceback.print_exc()
        _complain(["the above is a bug in Plimsoll: please report it with the command you ran"])
        sys.exit(INTERNAL)


def _interrupted() -> None:
    interrupts.settle()
    _complain(["interrupted"])


def _complain(errors: list[str]) -> None:
    from plimsoll.slo.records.foreign import printable

    for text in errors:
        print(f"error: {printable(text)}", file=sys.stderr)


if __name__ == "__main__":
    main()
