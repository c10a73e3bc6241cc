"""Writes a llama of two layers with random weights and a vocabulary of bytes as GGUF: a model that says nothing, really
served.

``tiny_gguf.py PATH``, in the environment of llama-cpp-python (``gguf`` is there). No weights are fetched.
"""

from __future__ import annotations

import sys

import gguf
import numpy as np

WIDTH, LAYERS, HEADS, HIDDEN, CONTEXT = 64, 2, 4, 128, 512


def main(path: str) -> None:
    made = gguf.GGUFWriter(path, "llama")
    made.add_name("tiny")
    made.add_context_length(CONTEXT)
    made.add_embedding_length(WIDTH)
    made.add_block_count(LAYERS)
    made.add_feed_forward_length(HIDDEN)
    made.add_head_count(HEADS)
    made.add_head_count_kv(HEADS)
    made.add_rope_dimension_count(WIDTH // HEADS)
    made.add_layer_norm_rms_eps(1e-5)
    made.add_file_type(gguf.LlamaFileType.ALL_F32)
    words = [b"<unk>", b"<s>", b"</s>", *(b"<0x%02X>" % i for i in range(256)), b"\xe2\x96\x81"]
    words += [b"\xe2\x96\x81%c" % letter for letter in b"abcdefghijklmnopqrstuvwxyz"]
    kinds = [gguf.TokenType.UNKNOWN, gguf.TokenType.CONTROL, gguf.TokenType.CONTROL] + [gguf.TokenType.BYTE] * 256
    kinds += [gguf.TokenType.NORMAL] * (len(words) - len(kinds))
    made.add_tokenizer_model("llama")
    made.add_vocab_size(len(words))
    made.add_token_list(words)
    made.add_token_scores([0.0] * len(words))
    made.add_token_types(kinds)
    made.add_bos_token_id(1)
    made.add_eos_token_id(2)
    made.add_unk_token_id(0)
    rng = np.random.default_rng(42)

    def weights(name: str, *shape: int) -> None:
        made.add_tensor(name, rng.normal(0, 0.1, shape).astype(np.float32))

    weights("token_embd.weight", len(words), WIDTH)
    head = rng.normal(0, 0.1, (len(words), WIDTH)).astype(np.float32)
    head[:3] = 0.0  # the end is never the likeliest
    made.add_tensor("output.weight", head)
    made.add_tensor("output_norm.weight", np.ones(WIDTH, np.float32))
    for i in range(LAYERS):
        made.add_tensor(f"blk.{i}.attn_norm.weight", np.ones(WIDTH, np.float32))
        made.add_tensor(f"blk.{i}.ffn_norm.weight", np.ones(WIDTH, np.float32))
        for part in ("attn_q", "attn_k", "attn_v", "attn_output"):
            weights(f"blk.{i}.{part}.weight", WIDTH, WIDTH)
        weights(f"blk.{i}.ffn_gate.weight", HIDDEN, WIDTH)
        weights(f"blk.{i}.ffn_up.weight", HIDDEN, WIDTH)
        weights(f"blk.{i}.ffn_down.weight", WIDTH, HIDDEN)
    made.write_header_to_file()
    made.write_kv_data_to_file()
    made.write_tensors_to_file()
    made.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
