"""How often something may be begun."""

import pytest

from apollod.engine.http.weights.call_errors import TooManyCalls
from apollod.engine.http.weights.call_rate import CallRate


def test_a_minute_has_so_many_and_a_refused_call_does_not_count() -> None:
    now = [100.0]
    rate = CallRate("groups were joined", 3, lambda: now[0])
    for _ in range(3):
        rate.take()
        now[0] += 10.0
    for _ in range(5):
        with pytest.raises(TooManyCalls, match="groups were joined more than 3 times in a minute") as caught:
            rate.take()
    assert caught.value.hint.startswith("wait 30 s")
    now[0] = 160.0
    rate.take()
    with pytest.raises(TooManyCalls, match="joined"):
        rate.take()
