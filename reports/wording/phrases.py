"""Phrases: an objective and a sentence as people read them."""


def expression(text: str) -> str:
    """An objective with typographic signs: ``p99(ttft) ≤ 200ms``."""
    return text.replace("<=", "≤").replace(">=", "≥")


def sentence(text: str) -> str:
    """``text`` with a capital and a full stop."""
    text = text.strip()
    if not text:
        return ""
    # A name such as p99(ttft) keeps its small letter.
    first = text.split(maxsplit=1)[0]
    start = text[0].upper() if first.isalpha() else text[0]
    return start + text[1:] + ("" if text.endswith((".", "!", "?")) else ".")
