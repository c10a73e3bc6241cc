"""``make interop``: an environment for each server, by its pins, then its tests. Names given on the command line are
done alone.

The servers agree on hardly any version, so each has its own. llama-cpp-python is compiled: 20 minutes on two cores,
once.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
PLACE = ROOT / ".venv-interop"
SERVERS = (
    "mlserver", "kserve", "bentoml", "ray", "llamacpp", "llamaserver", "vllm", "pytriton", "torchserve",
    "transformers", "sherpa", "nginx",
)  # fmt: skip
#: What a server's package asks for and what breaks it: built for CUDA, these can't be loaded beside a torch for the
#: CPU.
UNWANTED = {"vllm": ("torchvision", "torchaudio", "torchcodec")}


def install(server: str) -> None:
    """Make the server's environment, unless it is newer than its pins; nginx has none, the distribution brings it."""
    pins, done = ROOT / f"requirements-interop-{server}.txt", PLACE / server / ".installed"
    if not pins.exists():
        return
    if done.exists() and done.stat().st_mtime >= pins.stat().st_mtime:
        return
    print(f"installing {server} into {done.parent}", flush=True)
    python = PLACE / server / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(PLACE / server)], check=True)
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile"]
    subprocess.run([*pip, "-r", str(pins)], check=True)
    for name in UNWANTED.get(server, ()):
        subprocess.run([str(python), "-m", "pip", "uninstall", "--quiet", "--yes", name], check=True)
    done.touch()


def main(names: list[str]) -> int:
    unknown = sorted(set(names) - set(SERVERS))
    if unknown:
        print(f"no such server: {', '.join(unknown)}. Known: {', '.join(SERVERS)}", file=sys.stderr)
        return 2
    chosen = names or SERVERS
    for name in chosen:
        install(name)
    files = [f"tests/interop/{name}.py" for name in chosen]
    return subprocess.run([sys.executable, "-m", "pytest", "-q", "-n", "0", *files], cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
