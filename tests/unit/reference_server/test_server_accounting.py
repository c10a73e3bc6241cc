"""A request's account: whatever becomes of it, one row, one place in flight, one count."""

from __future__ import annotations

from typing import cast

import pytest

from plimsoll.reference_server.engine.metrics import Metrics
from plimsoll.reference_server.misfortune.fault import Break, Misfortune, parse_fault
from plimsoll.reference_server.misfortune.faults import Faults
from plimsoll.reference_server.seams.models import Script
from plimsoll.reference_server.seams.truth import Truth, TruthRow
from plimsoll.reference_server.service.service import Account, Service, accounted, obey
from plimsoll.reference_server.values.durations import Startup
from plimsoll.reference_server.values.errors import RequestError
from plimsoll.reference_server.values.timetable import DeadlineWheel


def made(*, ready: bool = True) -> Service:
    startup = Startup()
    startup.ready = ready
    faults = Faults([parse_fault("slow_headers=by:1ms")], seed=0)
    return Service(cast(DeadlineWheel, None), faults, Truth(), Metrics(), 1 << 20, startup=startup)


def counted(service: Service) -> list[str]:
    text = service.render_metrics().decode()
    return [line for line in text.splitlines() if line.startswith("reference_requests_total{")]


def test_a_request_is_in_flight_for_as_long_as_its_account_is_open() -> None:
    service = made()
    with accounted(service, "a", 5, service.closed()) as account:
        assert service.n_in_flight == 1
        assert account.row.outcome == "open"
        account.row.model, account.row.status, account.outcome = "m", 200, "ok"
    assert service.n_in_flight == 0
    row = service.truth.get("a")
    assert row is not None
    assert (row.outcome, row.received_ns) == ("ok", 5)
    (line,) = counted(service)
    assert line.endswith(" 1.0")
    assert '"ok"' in line


def test_what_raises_leaves_its_row_and_its_place_too() -> None:
    service = made()
    with pytest.raises(ZeroDivisionError), accounted(service, "a", 5, service.closed()):
        raise ZeroDivisionError
    assert service.n_in_flight == 0
    row = service.truth.get("a")
    assert row is not None
    assert row.outcome == "error"


def test_a_request_that_a_closed_server_refuses_does_not_start_the_clock_of_the_faults() -> None:
    service = made(ready=False)
    with accounted(service, "early", 5, service.closed()) as account, pytest.raises(RequestError, match="starting"):
        account.draw()
    service.startup.ready = True
    assert service.faults.first(7), "the next request should be the first"
    assert service.n_in_flight == 0


def test_a_request_s_own_wish_comes_before_the_faults() -> None:
    account = Account(made(), TruthRow("r", "m", 0))
    account.misfortune = Misfortune(error_at=3, cut_at=4, break_by=Break.RESET)
    assert account.limits(Script()) == (3, 4)
    assert account.break_by is Break.RESET
    assert account.limits(Script(error_at=1, cut_at=2)) == (1, 2)
    assert account.break_by is Break.CLOSE


def test_only_refusals_for_want_of_room_count_as_rejected() -> None:
    service = made()
    account = Account(service, TruthRow("r", "m", 0))
    account.refused(RequestError(400, "wrong", code="invalid_value"))
    assert b'reason="' not in service.render_metrics()
    account.refused(RequestError(429, "full", code="queue_full"))
    assert b'reason="queue_full"' in service.render_metrics()


def test_a_request_may_ask_for_its_own_refusal() -> None:
    obey(Script())
    with pytest.raises(RequestError) as refused:
        obey(Script(status=418))
    assert refused.value.status == 418
