"""Levenshtein's distance between two lists of words, and which words it takes for the same, fast enough for every answer of a run. Pure;
it folds no case and knows no text.
"""

from __future__ import annotations

from collections.abc import Sequence


def word_errors(reference: Sequence[str], output: Sequence[str]) -> int:
    """Levenshtein's distance in words: the fewest that must be substituted, left out or added.

    Myers' bit vectors as Hyyrö (2003) gives them for the whole distance: a column of the table is two whole numbers, its
    steps up and its steps down, so a word of the output costs a handful of operations whatever the length of the reference.
    """
    first, last_a, last_b = _unlike(reference, output)
    return _distance(reference[first:last_a], output[first:last_b], None)


def aligned(reference: Sequence[str], output: Sequence[str]) -> list[tuple[int, int]]:
    """(place in ``reference``, place in ``output``) of the words that are the same in one alignment of the fewest edits, ascending.

    Where several have as few, a word that comes again is taken for its first place.
    """
    first, last_a, last_b = _unlike(reference, output)
    left, right = reference[first:last_a], output[first:last_b]
    columns: list[tuple[int, int]] = []
    _distance(left, right, columns)
    i, j, found = len(left), len(right), []
    while columns and i and j:
        bit = 1 << (i - 1)
        if columns[j - 1][0] & bit:  # left out
            i -= 1
        elif j > 1 and columns[j - 2][1] & bit:  # added
            j -= 1
        else:
            i, j = i - 1, j - 1
            if left[i] == right[j]:
                found.append((first + i, first + j))
    behind = [(last_a + k, last_b + k) for k in range(len(reference) - last_a)]
    return [*((k, k) for k in range(first)), *reversed(found), *behind]


def cells(reference: Sequence[str], output: Sequence[str]) -> int:
    """The size of the table that ``aligned`` works on: it keeps up to a quarter of a byte a cell, and takes about a nanosecond."""
    first, last_a, last_b = _unlike(reference, output)
    return (last_a - first) * (last_b - first)


def _unlike(reference: Sequence[str], output: Sequence[str]) -> tuple[int, int, int]:
    """(first, end in ``reference``, end in ``output``) of what lies between the words that both begin and end with."""
    first, last_a, last_b = 0, len(reference), len(output)
    while first < min(last_a, last_b) and reference[first] == output[first]:
        first += 1
    while last_a > first and last_b > first and reference[last_a - 1] == output[last_b - 1]:
        last_a, last_b = last_a - 1, last_b - 1
    return first, last_a, last_b


def _distance(left: Sequence[str], right: Sequence[str], columns: list[tuple[int, int]] | None) -> int:
    """The distance; ``columns`` takes each column's steps up and down, of as many bits as ``left`` has words."""
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
        if columns is not None:
            columns.append((up, down))
    return distance
