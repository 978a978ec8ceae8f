"""Checks of names, shapes, addresses and settings that trainers and the environment give."""

import socket

import pytest

from apollod.adapters.system.web_address import ListenAddress
from apollod.engine.http.weights import body_checks
from apollod.engine.http.weights.body_checks import is_allowed, meeting, tensors
from apollod.engine.http.weights.call_errors import BadCall
from apollod.engine.http.weights.control_terms import ControlTerms, control_terms
from apollod.errors import ConfigError


def test_tensors_are_kept_and_dtypes_lose_their_prefix() -> None:
    made = tensors(["a", "b"], ["torch.bfloat16", "float32"], [[2, 3], []], "dtypes")
    assert (made.names, made.dtypes, made.shapes) == (["a", "b"], ["bfloat16", "float32"], [[2, 3], []])


@pytest.mark.parametrize(
    ("names", "dtypes", "shapes", "said"),
    [
        ([], [], [], "`names` is empty"),
        (["a"] * 65537, ["f"] * 65537, [[]] * 65537, "65537 names"),
        (["a", "b"], ["f"], [[], []], "`dtypes` has 1 entries, `names` has 2"),
        (["a"], ["f"], [], "`shapes` has 0 entries"),
        ([""], ["f"], [[]], "0 characters"),
        (["a" * 513], ["f"], [[]], "513 characters"),
        (["a"], ["f"], [[1] * 9], "9 dimensions"),
        (["a"], ["f"], [[2, -1]], r"\[2, -1\]"),
        (["a"], ["f"], [[1 << 49]], "shape of a"),
        (["a"], ["f"], [[1 << 30, 1 << 30]], "shape of a"),
        (["a"], ["f"], [[1 << 70, 0]], "shape of a"),
        (["a"], [""], [[]], "dtype ''"),
        (["a"], ["os.system"], [[]], "os.system"),
        (["a"], ["f" * 33], [[]], "dtype"),
        (["a"], ["ü"], [[]], "dtype"),
    ],
)
def test_what_no_tensor_can_be_is_named(
    names: list[str], dtypes: list[str], shapes: list[list[int]], said: str
) -> None:
    with pytest.raises(BadCall, match=said) as caught:
        tensors(names, dtypes, shapes, "dtypes")
    assert caught.value.hint


def test_as_many_names_as_allowed() -> None:
    count = body_checks.NAMES_MAX
    assert len(tensors(["a"] * count, ["f"] * count, [[1] * 8] * count, "dtypes").names) == count


@pytest.mark.parametrize("port", [1024, 65535, "51216", "1024"])
def test_a_port_is_a_number_or_its_digits(port: int | str) -> None:
    assert meeting("127.0.0.1", port, 1, 2, ()).port == int(port)


@pytest.mark.parametrize("port", [0, 22, 1023, 65536, -1, 1 << 70, "", "x", "1023", "99999999999", "-5", "1e4", "٣٣٣٣"])
def test_a_port_of_the_system_or_none_is_refused(port: int | str) -> None:
    with pytest.raises(BadCall, match="master_port"):
        meeting("127.0.0.1", port, 1, 2, ())


@pytest.mark.parametrize(("rank", "world"), [(0, 2), (2, 2), (-1, 2), (1, 1), (1, 0), (1, 65537), (1 << 70, 1 << 71)])
def test_a_place_outside_of_the_group_is_refused(rank: int, world: int) -> None:
    with pytest.raises(BadCall, match=r"rank_offset|world_size"):
        meeting("127.0.0.1", 5000, rank, world, ())


@pytest.mark.parametrize(
    "address", ["127.0.0.1", "127.9.9.9", "::1", "localhost", "LOCALHOST", "::ffff:127.0.0.1", socket.gethostname()]
)
def test_this_machine_may_be_joined(address: str) -> None:
    assert is_allowed(address, ())


def test_every_address_of_this_machine_may_be_joined() -> None:
    """TRL sends the outward one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            pytest.skip("this machine has no outward address")
        own = probe.getsockname()[0]
    assert is_allowed(own, ()) and not is_allowed("192.0.2.1", ())


@pytest.mark.parametrize(
    "address",
    [
        "192.0.2.7", "169.254.169.254", "8.8.8.8", "0.0.0.0", "::", "224.0.0.1", "2001:db8::1", "evil.example", "",
        "127.1", "2130706433", "127.0.0.1.evil.example", "127.0.0.1:80", "http://127.0.0.1", "x" * 1000, "localhost.",
    ],
)  # fmt: skip
def test_other_machines_are_not_joined_unless_listed(address: str) -> None:
    with pytest.raises(BadCall, match="not on this machine") as caught:
        meeting(address, 5000, 1, 2, ())
    assert "[control] addresses" in caught.value.hint
    if address:
        assert meeting(address, 5000, 1, 2, {address.lower()}).address == address


def test_a_version_has_a_bounded_name() -> None:
    assert (body_checks.label(None), body_checks.label(7), body_checks.label("v")) == ("", "7", "v")
    with pytest.raises(BadCall, match="257"):
        body_checks.label("x" * 257)


# --- the environment ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", ["", "0", "true", "2"])
def test_routes_are_off_unless_the_variable_is_1(value: str) -> None:
    assert control_terms({}) is None and control_terms({"APOLLOD_CONTROL": value}) is None


def test_terms_come_from_the_environment() -> None:
    assert control_terms({"APOLLOD_CONTROL": "1"}) == ControlTerms(600.0, frozenset())
    given = {"APOLLOD_CONTROL": "1", "APOLLOD_CONTROL_LISTEN": "127.0.0.1:8001"}
    assert control_terms(given) == ControlTerms(600.0, frozenset(), ListenAddress("127.0.0.1", 8001))
    with pytest.raises(ConfigError, match="APOLLOD_CONTROL_LISTEN: '8001' is no host and port"):
        control_terms({**given, "APOLLOD_CONTROL_LISTEN": "8001"})
    given = {
        "APOLLOD_CONTROL": "1", "APOLLOD_CONTROL_PAUSE_S": "2.5", "APOLLOD_CONTROL_ADDRESSES": " 10.0.0.7, Box.lan,,",
    }  # fmt: skip
    assert control_terms(given) == ControlTerms(2.5, frozenset({"10.0.0.7", "box.lan"}))


@pytest.mark.parametrize("value", ["x", "0", "-1", "nan", "inf", "86401"])
def test_a_time_that_is_none_is_named(value: str) -> None:
    with pytest.raises(ConfigError, match="APOLLOD_CONTROL_PAUSE_S"):
        control_terms({"APOLLOD_CONTROL": "1", "APOLLOD_CONTROL_PAUSE_S": value})
