"""The server's books and its time to the first token beside ours: like is set beside like, or nothing is."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from plimsoll.slo.records.labels import LabelTable
from plimsoll.slo.records.records import Phase, Records, Status, TokensFrom, from_columns
from plimsoll.slo.server.canonical import name_of
from plimsoll.slo.server.served import Asked, Origin, Served, Track
from plimsoll.slo.server.server_side import ServerSide, server_side

S, MS = 1_000_000_000, 1_000_000
OK, MEASURE, ATTEMPT = Status.OK, Phase.MEASURE, Phase.ATTEMPT


def said(records: Records, **grown: float) -> ServerSide:
    """A server that counted nothing before the run, and so much after it."""
    sent = np.array([-S, 9 * S])
    asked = Asked(Origin("a", "http://a/metrics", S, S, 0), sent, sent + 1, sent + 2, np.ones(2))
    families = [f"vllm:{name}" for name in grown]
    at = np.arange(2)
    tracks = [
        Track("a", family, {}, name_of(family), at, np.array([0.0, value]))
        for family, value in zip(families, grown.values(), strict=True)
    ]
    return server_side(Served({"a": asked}, tuple(tracks)), records)


def rows(
    sent_ms: Sequence[int],
    first_ms: Sequence[int],
    status: Sequence[Status],
    phase: Sequence[Phase],
    tries: Sequence[int],
    n_in_from: Sequence[TokensFrom],
) -> Records:
    n = len(sent_ms)
    sent, first = (np.array(times) * MS for times in (sent_ms, first_ms))
    answered = np.array(status) == OK
    found = from_columns(
        n, query_id=np.arange(n), due_ns=sent, ready_ns=sent, sent_ns=sent, headers_ns=sent + MS,
        first_token_ns=np.where(answered, first, -1), done_ns=first, n_in=np.full(n, 100),
        n_out=np.where(answered, 7, -1), status=np.array(status), phase=np.array(phase), n_in_from=np.array(n_in_from),
    )  # fmt: skip
    return found.labelled(LabelTable.of({"tries": list(tries)}))


USAGE, PLAN = TokensFrom.USAGE, TokensFrom.PLAN


def books(side: ServerSide) -> dict[str, tuple[float | None, int | None]]:
    return {one.what: (one.theirs, one.ours) for one in side.books}


def test_prompts_that_only_the_plan_counted_are_in_no_book() -> None:
    """A refused request has the plan's length: no server counted it, in the plan's tokens least of all."""
    found = rows([0, 10], [5, 15], [OK, Status.REFUSED], [MEASURE] * 2, [1, 1], [USAGE, PLAN])
    assert books(said(found, prompt_tokens_total=100)) == {"prompt tokens": (100, 100)}


def test_where_the_answers_tell_no_length_there_is_nothing_to_compare() -> None:
    found = said(rows([0, 10], [5, 15], [OK, OK], [MEASURE] * 2, [1, 1], [PLAN, PLAN]), prompt_tokens_total=250)
    assert books(found) == {"prompt tokens": (250, None)}
    assert found.books[0].why == "not every answer says how many"


def test_prompt_tokens_that_the_server_found_in_its_cache_may_be_in_another_count_of_its() -> None:
    found = rows([0, 10], [5, 15], [OK, OK], [MEASURE] * 2, [1, 1], [USAGE] * 2)
    counts = {"prompt_tokens_total": 140, "prefix_cache_hits_total": 60, "prefix_cache_queries_total": 200}
    assert books(said(found, **counts)) == {"prompt tokens, without those in its cache": (140, 140)}
    assert books(said(found, **counts | {"prefix_cache_hits_total": 59})) == {"prompt tokens": (140, 200)}
    assert books(said(found, **counts | {"prompt_tokens_total": 200})) == {"prompt tokens": (200, 200)}


def test_the_wait_before_another_attempt_is_no_network() -> None:
    """Sent at 0, refused, sent again at 100 ms and answered 5 ms later: the server can know of those 5 ms only."""
    status = [OK, Status.REFUSED, OK]
    found = rows([0, 0, 100], [105, 1, 105], status, [MEASURE, ATTEMPT, ATTEMPT], [2, 2, 2], [USAGE, PLAN, USAGE])
    told = {"time_to_first_token_seconds_sum": 0.004, "time_to_first_token_seconds_count": 1.0}
    first = said(found, **told).first_token
    assert first is not None
    assert (first.theirs_ns, first.ours_ns) == (4 * MS, 5 * MS)


def test_of_a_warm_up_that_tried_again_nobody_knows_when_the_answered_attempt_was_sent() -> None:
    found = rows([-100, 0], [-5, 4], [OK, OK], [Phase.WARMUP, MEASURE], [2, 1], [USAGE, USAGE])
    told = {"time_to_first_token_seconds_sum": 0.004, "time_to_first_token_seconds_count": 1.0}
    assert said(found, **told).first_token is None


def test_where_some_had_no_whole_answer_a_difference_is_not_laid_on_others() -> None:
    """Cancelled and lost attempts: a server may count their prompts and not them. Without any there is no such word."""
    status, phase = [OK, Status.CANCELLED, OK, OK, Status.CANCELLED], [MEASURE, MEASURE, MEASURE, ATTEMPT, ATTEMPT]
    found = rows(range(5), range(5, 10), status, phase, [1, 1, 2, 2, 2], [USAGE, PLAN, USAGE, USAGE, PLAN])
    (book,) = said(found, prompt_tokens_total=330).books
    assert (book.theirs, book.ours) == (330, 200)
    assert book.why == "2 of ours had no whole answer: the two may count those differently"
    (alike,) = said(found, prompt_tokens_total=200).books
    whole = rows([0], [5], [OK], [MEASURE], [1], [USAGE])
    assert [alike.why, said(whole, prompt_tokens_total=101).books[0].why] == ["", ""]


def test_of_turns_on_one_connection_like_is_compared_with_like_or_it_is_said_why_not() -> None:
    """Two calls of three turns, 7 tokens each: a server may count connections, turns, or no tokens of speech at all."""
    found = rows(range(6), range(5, 11), [OK] * 6, [MEASURE] * 6, [1] * 6, [USAGE] * 6)
    heads = np.where(np.arange(6) % 3 == 0, found["headers_ns"], -1)
    calls = found.with_columns(headers_ns=heads, tokens_from=np.full(6, int(USAGE)))
    families = {"request_success_total": 2.0, "generation_tokens_total": 0.0}
    by_connection, tokens = said(calls, **families).books
    assert (by_connection.what, by_connection.difference) == ("connections of sessions", 0)
    assert (tokens.theirs, tokens.ours, tokens.difference) == (0, 42, None)
    assert tokens.why.startswith("not comparable, because")
    (by_turn,) = said(calls, request_success_total=6.0).books
    assert (by_turn.what, by_turn.difference) == ("turns of sessions", 0)
    (neither,) = said(calls, request_success_total=4.0).books
    assert (neither.theirs, neither.ours, neither.difference) == (4, 2, None)
    assert said(found.with_columns(tokens_from=np.full(6, int(USAGE))), **families).books[1].difference == -42
