"""Real weights from a folder give what the reference implementation gives, and every flaw of a folder is named.

Tolerance of the logits: 1e-5 in float32, where the largest are about one and rounding in another order of summation
makes some 3e-7.
"""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from plimsoll.reference_server.engine.kv_blocks import KvBlocks
from plimsoll.reference_server.engine.scheduler import Generation, Scheduler
from plimsoll.reference_server.values.errors import ConfigError

torch = pytest.importorskip("torch", reason="the language model needs torch")
transformers = pytest.importorskip("transformers", reason="the models of these tests are made with transformers")

from safetensors.torch import load_file, save_file  # noqa: E402

from plimsoll.reference_server.device.llama_runner import LlamaRunner, Options  # noqa: E402
from plimsoll.reference_server.models.llama import Llama  # noqa: E402
from plimsoll.reference_server.models.llama_folder import load, read_config  # noqa: E402
from plimsoll.reference_server.values.durations import Startup  # noqa: E402

TOLERANCE = 1e-5
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500_000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
KINDS: dict[str, dict[str, Any]] = {
    "untied, llama3 rope, one file": {"rope_parameters": LLAMA3},
    "tied, shards": {"tie_word_embeddings": True, "rope_parameters": {"rope_type": "default", "rope_theta": 10_000.0}},
}


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Any, Path]]:
    """Models of the reference implementation, and the folders that it saved."""
    return {kind: made(kind, tmp_path_factory.mktemp("model")) for kind in KINDS}


def made(kind: str, folder: Path) -> tuple[Any, Path]:
    config = transformers.LlamaConfig(
        hidden_size=96,
        num_hidden_layers=3,
        num_attention_heads=6,
        num_key_value_heads=2,
        head_dim=20,
        intermediate_size=112,
        vocab_size=211,
        max_position_embeddings=256,
        initializer_range=0.08,
        eos_token_id=[3, 7],
        **KINDS[kind],
    )
    torch.manual_seed(1)
    model = transformers.LlamaForCausalLM(config).eval()
    for name, weight in model.named_parameters():
        if "norm" in name:  # ones, as it makes them, would hide that they are used at all
            torch.nn.init.uniform_(weight, 0.5, 1.5)
    model.save_pretrained(folder, max_shard_size="200KB" if "shards" in kind else "1GB")
    assert (len(list(folder.glob("*.safetensors"))) > 1) == ("shards" in kind)
    return model, folder


@pytest.fixture(params=list(KINDS))
def pair(request: pytest.FixtureRequest, pairs: dict[str, tuple[Any, Path]]) -> tuple[Any, Path]:
    return pairs[request.param]


def loaded(folder: Path) -> Llama:
    described = read_config(folder)
    weights = load(folder, described.shape, device="cpu", dtype=torch.float32)
    return Llama(described.shape, weights, eos=described.eos, printable=False)


def test_logits_are_those_of_the_reference_implementation(pair: tuple[Any, Path]) -> None:
    theirs, folder = pair
    tokens = torch.randint(0, 211, (120,), generator=torch.Generator().manual_seed(5))
    with torch.inference_mode():
        want = theirs(tokens.unsqueeze(0)).logits[0]
        got = loaded(folder).prompt_logits(tokens)
    assert float(want.abs().max()) > 0.5
    assert float((got - want).abs().max()) < TOLERANCE


@pytest.mark.parametrize("options", [Options(), Options(ahead=True, sizes=(1, 4, 8))], ids=["plain", "ahead, padded"])
def test_greedy_answers_through_the_paged_engine_are_those_of_the_reference_implementation(
    pair: tuple[Any, Path], options: Options
) -> None:
    theirs, folder = pair
    chooser = random.Random(2)
    prompts = [[chooser.randrange(10, 211) for _ in range(n)] for n in (1, 9, 40, 75)]
    runner = LlamaRunner(
        loaded(folder), block_size=8, n_blocks=80, max_batch=8, threads=1, options=options, startup=Startup()
    )
    scheduler = Scheduler(
        KvBlocks(80, 8), max_batch=8, queue_limit=9, max_context=256, step_tokens=32, eos=frozenset({3, 7})
    )
    generations = [Generation(i, list(prompt), 24) for i, prompt in enumerate(prompts)]
    for generation in generations:
        scheduler.submit(generation)
    while chunks := scheduler.plan():
        scheduler.commit(chunks, runner.step(chunks))
    for prompt, generation in zip(prompts, generations, strict=True):
        with torch.inference_mode():
            want = theirs.generate(
                torch.tensor([prompt]), attention_mask=torch.ones(1, len(prompt)), max_new_tokens=24, do_sample=False
            )
        assert generation.tokens == want[0].tolist()


def test_a_configuration_of_an_earlier_version_means_the_same(pair: tuple[Any, Path], tmp_path: Path) -> None:
    _, folder = pair
    given = json.loads((folder / "config.json").read_text())
    rope = given.pop("rope_parameters")
    given["rope_theta"] = rope.pop("rope_theta")
    given["rope_scaling"] = rope if rope["rope_type"] != "default" else None
    (tmp_path / "config.json").write_text(json.dumps(given))
    assert read_config(tmp_path).shape == read_config(folder).shape


@pytest.fixture
def folder(pairs: dict[str, tuple[Any, Path]], tmp_path: Path) -> Path:
    """A copy to spoil, of the model in shards."""
    _, whole = pairs["tied, shards"]
    return Path(shutil.copytree(whole, tmp_path / "copy"))


def change(folder: Path, **values: object) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"--weights .*nowhere: no such folder"):
        read_config(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match=r"it has no config\.json"):
        read_config(tmp_path)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"model_type": "mistral"}, "model_type is 'mistral'"),
        ({"attention_bias": True}, "attention_bias is true"),
        ({"hidden_act": "gelu"}, "hidden_act 'gelu'"),
        ({"quantization_config": {"bits": 4}}, "quantised weights"),
        ({"hidden_size": "many"}, "hidden_size must be a positive whole number, not 'many'"),
        ({"num_key_value_heads": 4}, "no multiple of num_key_value_heads 4"),
        ({"head_dim": 15}, "head_dim 15 is odd"),
        ({"rope_parameters": {"rope_type": "yarn", "rope_theta": 1.0}}, "rotary scaling 'yarn'"),
        ({"rope_parameters": {"rope_type": "llama3", "rope_theta": 1.0}}, "factor must be a positive number"),
        ({"rope_parameters": 7}, "rotary parameters must be an object"),
        ({"rms_norm_eps": 0}, "rms_norm_eps must be a positive number"),
    ],
)
def test_a_configuration_that_is_not_served_is_refused_by_name(
    folder: Path, values: dict[str, object], said: str
) -> None:
    change(folder, **values)
    with pytest.raises(ConfigError) as refused:
        read_config(folder)
    assert said in str(refused.value)


def test_several_mistakes_are_named_at_once(folder: Path) -> None:
    change(folder, hidden_size=-1, vocab_size=None, rms_norm_eps="x")
    with pytest.raises(ConfigError, match=r"hidden_size.*vocab_size.*rms_norm_eps"):
        read_config(folder)


def test_an_end_token_outside_the_vocabulary_is_refused(folder: Path) -> None:
    (folder / "generation_config.json").write_text('{"eos_token_id": [3, 999]}')
    with pytest.raises(ConfigError, match=r"eos_token_id \[999\]"):
        read_config(folder)


@pytest.mark.parametrize("text", ["{", "[]", "\ud800"])
def test_a_configuration_that_is_no_json_object_is_named(folder: Path, text: str) -> None:
    (folder / "config.json").write_text(text, errors="surrogatepass")
    with pytest.raises(ConfigError, match=r"config\.json"):
        read_config(folder)


def rewrite(folder: Path, edit: Any) -> None:
    path = sorted(folder.glob("*.safetensors"))[-1]
    tensors = load_file(path)
    edit(tensors)
    save_file(tensors, path)


def first_norm(tensors: dict[str, Any]) -> str:
    return min(name for name in tensors if "norm" in name)


def test_missing_misshapen_and_unknown_tensors_are_named_at_once(folder: Path) -> None:
    def edit(tensors: dict[str, Any]) -> None:
        tensors.pop(first_norm(tensors))
        tensors[first_norm(tensors)] = torch.zeros(95)
        tensors["model.layers.0.self_attn.q_proj.bias"] = torch.zeros(120)

    rewrite(folder, edit)
    with pytest.raises(ConfigError) as refused:
        load(folder, read_config(folder).shape, device="cpu", dtype=torch.float32)
    for said in ("is missing", "is [95], but config.json makes it [96]", "q_proj.bias has no place"):
        assert said in str(refused.value)


def test_weights_of_whole_numbers_are_refused(folder: Path) -> None:
    rewrite(folder, lambda tensors: tensors.update({first_norm(tensors): torch.zeros(96, dtype=torch.int8)}))
    with pytest.raises(ConfigError, match="holds I8"):
        load(folder, read_config(folder).shape, device="cpu", dtype=torch.float32)


def test_a_file_that_cannot_be_read_is_named(folder: Path) -> None:
    path = sorted(folder.glob("*.safetensors"))[0]
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(ConfigError, match=rf"{path.name} can't be read"):
        load(folder, read_config(folder).shape, device="cpu", dtype=torch.float32)
    path.unlink()
    with pytest.raises(ConfigError, match=rf"{path.name} is missing, although"):
        load(folder, read_config(folder).shape, device="cpu", dtype=torch.float32)


def test_a_folder_without_weights_is_named(folder: Path) -> None:
    for path in (*folder.glob("*.safetensors"), folder / "model.safetensors.index.json"):
        path.unlink()
    with pytest.raises(ConfigError, match=r"no \*\.safetensors file"):
        load(folder, read_config(folder).shape, device="cpu", dtype=torch.float32)


def test_an_index_that_cannot_be_read_is_named(folder: Path) -> None:
    (folder / "model.safetensors.index.json").write_text('{"weight_map": []}')
    with pytest.raises(ConfigError, match=r"index\.json can't be read"):
        load(folder, read_config(folder).shape, device="cpu", dtype=torch.float32)
