"""Where the list of models is, for every way to write the URL of a server."""

from __future__ import annotations

import pytest

from plimsoll.harness.protocols._clients import models_path


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("http://h:1", "/v1/models"),
        ("http://h:1/", "/v1/models"),
        ("http://h:1/v1", "/v1/models"),
        ("http://h:1/api/v3/", "/api/v3/models"),
        ("http://h:1/base", "/base/v1/models"),
        ("http://h:1/v1/chat/completions", "/v1/models"),
        ("http://h:1/v1/completions", "/v1/models"),
        ("http://h:1/v1/responses/", "/v1/models"),
        ("http://h:1/v1/audio/speech", "/v1/models"),
        ("http://h:1/v1/embeddings?api-version=2", "/v1/models?api-version=2"),
    ],
)
def test_the_list_is_beside_the_endpoint_whatever_part_of_its_url_was_given(url: str, path: str) -> None:
    assert models_path(url) == path
