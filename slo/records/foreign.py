"""Text of strangers: what a server, an agent or a file says, made fit for a terminal, a CI log and a report.

It may say anything; it must not steer what shows it: no control character or escape sequence, no change of direction,
no workflow command of a CI system, no line or length of its own choice.
"""

import re
from collections.abc import Mapping
from typing import Any

#: The longest name of anything, and the longest sentence about it, in characters.
NAME, SENTENCE = 100, 2000
#: Direction marks, invisible characters and half surrogates; control characters but for tabs and line ends.
_STEERING = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff\U000e0000-\U000e007f]"
)
#: What a CI system obeys: GitHub's at the start of a line, the older form of it (Azure's and TeamCity's too) anywhere.
#: Whoever shows a text may begin a line with any word of it, and with any letter of a long one: there the names are
#: those that GitHub knows.
_KNOWN = "error|warning|notice|debug|group|endgroup|echo|(?:add|stop|remove|set|save)-[a-z]+"
_COMMAND = re.compile(rf"(?<!\S):(?=:[a-z][\w-]*.*?::)|:(?=:(?:{_KNOWN})\b.*?::)", re.DOTALL | re.IGNORECASE)
_OLD_COMMAND = re.compile(r"##(?=\[|(?:vso|teamcity)\[)")


def printable(text: str) -> str:
    """``text`` with U+FFFD for every character that could steer a terminal, and workflow commands broken; tabs and line
    ends stay.
    """
    if text.isascii() and text.replace("_", "").isalnum():  # most names and numbers, in a tenth of the time
        return text
    return _OLD_COMMAND.sub("# #", _COMMAND.sub(": ", _STEERING.sub("\ufffd", text)))


def one_line(text: object, limit: int = SENTENCE) -> str:
    """The first ``limit`` characters of ``str(text)`` on one line, printable; an ellipsis where it was cut."""
    line = printable(" ".join(str(text)[: 4 * limit].split()))
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


def cleaned(value: Any, limit: int = SENTENCE) -> Any:
    """``value``, of JSON's types, with each string in it, keys included, as ``one_line`` has it."""
    if isinstance(value, str):
        return one_line(value, limit)
    if isinstance(value, Mapping):
        return {one_line(key, NAME) if isinstance(key, str) else key: cleaned(one, limit) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [cleaned(one, limit) for one in value]
    return value
