"""What ``--option K=V`` makes of its texts."""

from __future__ import annotations

import pytest

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.verbs.run import paced, pairs, yaml_values


def test_a_dotted_name_reaches_inside() -> None:
    given = pairs(["audio.frame=20ms", "audio.pace=burst", "words=true", "rate=8000"], "=", "--option")
    assert yaml_values(given) == {"audio": {"frame": "20ms", "pace": "burst"}, "words": True, "rate": 8000}


def test_a_value_and_something_inside_it_do_not_go_together() -> None:
    with pytest.raises(HarnessFault, match="Keep one of the two"):
        yaml_values({"audio": "1", "audio.frame": "20ms"})


def test_what_is_no_yaml_is_refused() -> None:
    with pytest.raises(HarnessFault, match="not YAML"):
        yaml_values({"x": "{"})


def test_pace_is_the_option_of_live_audio() -> None:
    assert paced({"audio": {"frame": "20ms"}}, "burst") == {"audio": {"frame": "20ms", "pace": "burst"}}
    assert paced({}, None) == {}
    with pytest.raises(HarnessFault, match="Keep one of the two"):
        paced({"audio": {"pace": "2x"}}, "burst")
