"""Flags that several verbs take, declared once. Nothing is read or checked here."""

from __future__ import annotations

from typing import Annotated

import typer

Slo = Annotated[
    list[str] | None,
    typer.Option(
        "--slo",
        metavar="EXPR_OR_FILE",
        help="An objective such as 'p99(ttft) <= 200ms', or a YAML file of objectives. Repeatable; replaces the file's.",
    ),
]
FormatOption = Annotated[
    list[str] | None,
    typer.Option("--format", metavar="F=PATH", help="Also write the report in format F. Repeatable."),
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON on stdout.")]
Goodput = Annotated[
    str | None,
    typer.Option(metavar="'ttft:200 tpot:50'", help="Limits of a good request, as vLLM's bench takes them (ms)."),
]
PresetOption = Annotated[
    list[str] | None,
    typer.Option("--preset", metavar="NAME", help="A published set of limits; see `plimsoll slo presets`. Repeatable."),
]
Confidence = Annotated[
    str | None, typer.Option(metavar="C", help="How sure each bound must be (default 0.95, or the preset's).")
]
ProductionRate = Annotated[
    float | None, typer.Option(metavar="R", help="Requests per second in production: for budgets by events.")
]
