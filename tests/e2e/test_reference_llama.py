"""A folder of weights as a process: its own tokenizer, its own end, its own words; and one line for a folder that is
none.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.test_reference_server import Server, running

pytestmark = pytest.mark.e2e

SPECIALS = ("<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>")
VOCABULARY = 262
CONFIG: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 48,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 512,
    "rope_theta": 10000.0,
    "eos_token_id": 0,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Random weights of the architecture, and a tokenizer of bytes with the headers of Llama 3."""
    torch = pytest.importorskip("torch", reason="the language model needs torch")
    from safetensors.torch import save_file
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    from plimsoll.reference_server.models.llama_folder import expected, read_config

    made = tmp_path_factory.mktemp("weights")
    (made / "config.json").write_text(json.dumps(CONFIG))
    torch.manual_seed(3)
    save_file(
        {
            name: torch.ones(size) if len(size) == 1 else torch.randn(size) * 0.2
            for name, size in expected(read_config(made).shape)
        },
        made / "model.safetensors",
    )
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({letter: n for n, letter in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(name, special=True) for name in SPECIALS])
    tokenizer.save(str(made / "tokenizer.json"))
    (made / "tokenizer_config.json").write_text('{"bos_token": "<|begin_of_text|>"}')
    return made


def completed(server: Server, **body: Any) -> dict[str, Any]:
    response, answer = server.call("/v1/completions", {"model": "llm", "max_tokens": 12, "ignore_eos": True} | body)
    assert response.status == 200, answer
    return dict(json.loads(answer))


def test_a_folder_of_weights_is_served_with_its_own_tokenizer(folder: Path) -> None:
    arguments = ("--model", "llm", "--weights", str(folder), "--device", "cpu", "--threads", "1")
    with running(*arguments) as server:
        assert {"weights", "warm_up"} <= server.ready["startup_s"].keys()
        text = completed(server, prompt="hello €")
        assert (text["usage"]["prompt_tokens"], text["usage"]["completion_tokens"]) == (1 + 5 + 1 + 3, 12)
        assert completed(server, prompt="hello €")["choices"] == text["choices"]
        assert completed(server, prompt="another")["choices"] != text["choices"]
        chat = {"model": "llm", "max_tokens": 12, "messages": [{"role": "user", "content": "<|eot_id|>"}]}
        response, answer = server.call("/v1/chat/completions", chat)
        assert response.status == 200
        # Begin, a header of six tokens round "user" and two line ends, the content byte by byte, an end, another
        # header.
        assert json.loads(answer)["usage"]["prompt_tokens"] == 1 + (2 + 4 + 2) + len("<|eot_id|>") + 1 + (2 + 9 + 2)
        response, answer = server.call("/v1/completions", {"model": "llm", "prompt": "x" * 600, "max_tokens": 1})
        assert response.status == 400
        assert b"512" in answer


def test_a_folder_that_cannot_be_served_is_one_line(folder: Path, tmp_path: Path) -> None:
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "config.json").write_text(json.dumps(CONFIG | {"num_hidden_layers": 3}))
    command = [
        sys.executable,
        "-m",
        "plimsoll.reference_server",
        "--http-port",
        "0",
        "--model",
        "llm",
        "--weights",
        str(tmp_path),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"error: --weights {tmp_path}: model.layers.2.")
    assert len(done.stderr.splitlines()) == 1
