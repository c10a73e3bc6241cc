"""The compiled parts of Plimsoll. Each is optional: without it a slower Python part of the same behaviour is used."""

from __future__ import annotations

from pathlib import Path

from setuptools import Extension, setup


def extension(name: str, folder: str) -> list[Extension]:
    sources = sorted(str(path) for path in Path(folder).glob("*.c"))
    headers = sorted(str(path) for path in Path(folder).glob("*.h"))
    if not sources:
        return []
    return [
        Extension(
            name,
            sources=sources,
            depends=headers,
            define_macros=[("Py_LIMITED_API", "0x030B0000")],
            extra_compile_args=["-std=c11", "-O2", "-Wall", "-Wextra", "-fno-strict-aliasing", "-pthread"],
            extra_link_args=["-pthread"],
            libraries=["m"],
            py_limited_api=True,
            optional=True,
        )
    ]


setup(
    ext_modules=[
        *extension("plimsoll.harness.generator._engine", "harness/generator/engine"),
        *extension("plimsoll.harness.process._scratch", "harness/process/scratch"),
        *extension("plimsoll.reference_server._oracle", "reference_server/oracle"),
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
