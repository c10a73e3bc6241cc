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
