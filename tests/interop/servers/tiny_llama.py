"""Writes a llama of two layers, seeded random weights and a vocabulary of bytes, as transformers keeps one.

``tiny_llama.py FOLDER``, in an environment that has transformers. No weights are fetched.
"""

from __future__ import annotations

import sys

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

WIDTH, LAYERS, HEADS, HIDDEN, CONTEXT = 64, 2, 2, 128, 16_384
TEMPLATE = "{% for message in messages %}{{ message['content'] }} {% endfor %}"


def main(folder: str) -> None:
    special = ["<unk>", "<s>", "</s>"]
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {word: number for number, word in enumerate([*special, *letters])}
    inner = Tokenizer(models.BPE(vocab=vocabulary, merges=[], unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    made = PreTrainedTokenizerFast(
        tokenizer_object=inner, unk_token="<unk>", bos_token="<s>", eos_token="</s>", chat_template=TEMPLATE
    )
    made.save_pretrained(folder)
    torch.manual_seed(42)
    config = LlamaConfig(
        vocab_size=len(vocabulary),
        hidden_size=WIDTH,
        intermediate_size=HIDDEN,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=HEADS,
        max_position_embeddings=CONTEXT,
        bos_token_id=1,
        eos_token_id=2,
        initializer_range=0.1,
        tie_word_embeddings=False,
    )
    model = LlamaForCausalLM(config)
    with torch.no_grad():
        # The end and bytes that are no letters of their own are never the likeliest: every token is text at once.
        for word, number in vocabulary.items():
            if word in special or not (word.isascii() and word.isalpha()):
                model.lm_head.weight[number] = 0.0
    model.save_pretrained(folder)


if __name__ == "__main__":
    main(sys.argv[1])
