"""Levenshtein's distance between two lists of words, fast enough for every answer of a run. Pure; it folds no case and knows no text."""

from __future__ import annotations

from collections.abc import Sequence


def word_errors(reference: Sequence[str], output: Sequence[str]) -> int:
    """Levenshtein's distance in words: the fewest that must be substituted, left out or added.

    Myers' bit vectors as Hyyrö (2003) gives them for the whole distance: a column of the table is two whole numbers, its
    steps up and its steps down, so a word of the output costs a handful of operations whatever the length of the reference.
    """
    first, last_a, last_b = 0, len(reference), len(output)
    while first < min(last_a, last_b) and reference[first] == output[first]:
        first += 1
    while last_a > first and last_b > first and reference[last_a - 1] == output[last_b - 1]:
        last_a, last_b = last_a - 1, last_b - 1
    left, right = reference[first:last_a], output[first:last_b]
    if not left or not right:
        return max(len(left), len(right))
    at: dict[str, int] = {}
    for i, word in enumerate(left):
        at[word] = at.get(word, 0) | 1 << i
    every, top = (1 << len(left)) - 1, 1 << (len(left) - 1)
    up, down, distance = every, 0, len(left)
    for word in right:
        same = at.get(word, 0)
        diagonal = (((same & up) + up) ^ up) | same | down
        across_up = down | (every & ~(diagonal | up))
        across_down = up & diagonal
        distance += bool(across_up & top) - bool(across_down & top)
        across_up = (across_up << 1 | 1) & every
        up = (across_down << 1 | (every & ~(diagonal | across_up))) & every
        down = across_up & diagonal
    return distance


__all__ = ["word_errors"]
