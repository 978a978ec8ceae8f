"""A sitting: what is shown next, what can be taken back, and what others do meanwhile."""

from apollod.cli.control.examples.held_queue import Change, Decided, Sitting

A, B, C, D = "abcd"
THREE = Sitting().arrived([A, B, C])


def gone(example: str, how: str = "declined", by: str = "anna") -> Change:
    return Change(example, False, how, by)


def held(example: str, by: str = "anna") -> Change:
    return Change(example, True, "held", by)


def test_the_first_one_is_shown_and_one_goes_round():
    assert (THREE.current, THREE.place) == (A, 1)
    assert [THREE.moved(by).current for by in (1, 2, 3, -1)] == [B, C, A, C]
    assert Sitting().moved(1) == Sitting() and Sitting().place == 0


def test_after_a_decision_comes_the_next_one_and_after_the_last_the_first():
    sitting = THREE.moved(1).decides(Decided(B, "approved"))
    assert (sitting.waiting, sitting.current, sitting.count("approved")) == ((A, C), C, 1)
    sitting = sitting.decides(Decided(C, "declined"))
    assert sitting.current == A
    sitting = sitting.decides(Decided(A, "edited", D))
    assert (sitting.waiting, sitting.current, sitting.last) == ((), "", Decided(A, "edited", D))


def test_decisions_are_taken_back_from_the_newest_on_each_to_where_one_is():
    sitting = THREE.decides(Decided(A, "approved")).decides(Decided(B, "declined"))
    back = sitting.takes_back()
    assert (back.waiting, back.current, back.last) == ((B, C), B, Decided(A, "approved"))
    back = back.moved(1).takes_back()
    assert (back.waiting, back.current, back.last) == ((B, A, C), A, None)
    only = Sitting().arrived([A]).decides(Decided(A, "approved")).takes_back()
    assert (only.waiting, only.current) == ((A,), A)


def test_ones_own_decisions_are_no_news():
    sitting = THREE.decides(Decided(A, "approved"))
    assert sitting.hears([gone(A, "approved", "me")]) == (sitting, [])
    edited = THREE.decides(Decided(A, "edited", D))
    assert edited.hears([gone(A, "edited", "me")]) == (edited, [])
    back = sitting.takes_back()
    assert back.hears([held(A, "me")]) == (back, [])


def test_what_somebody_else_decided_goes_and_is_told_if_it_was_on_the_screen():
    sitting, news = THREE.hears([gone(B), gone(A)])
    assert (sitting.waiting, sitting.current, news) == ((C,), C, [gone(A)])
    assert THREE.moved(2).hears([gone(C, "expired", "")])[0].current == A
    sitting, news = THREE.hears([gone(A), gone(B), gone(C)])
    assert (sitting.waiting, sitting.current) == ((), "")


def test_what_somebody_else_decided_after_this_person_cannot_be_taken_back_any_more():
    sitting = THREE.decides(Decided(A, "approved")).decides(Decided(B, "declined"))
    after, news = sitting.hears([gone(A, "approved", "me"), gone(A, "declined")])
    assert (after.decided, news) == ((Decided(B, "declined"),), [gone(A, "declined")])
    after, news = sitting.hears([held(B)])
    assert (after.decided, after.waiting, news) == ((Decided(A, "approved"),), (C, B), [held(B)])


def test_what_arrives_is_the_last_and_comes_once():
    assert THREE.arrived([D, A, D]).waiting == (A, B, C, D)
    assert Sitting().arrived([]).current == "" and Sitting().hears([held(A)])[0].current == A
    assert THREE.hears([gone(A), held(A)])[0].waiting == (A, B, C)
    assert D not in THREE.hears([held(D), gone(D)])[0].waiting


def test_a_filter_shows_some_and_what_was_taken_back_in_any_case():
    some = THREE.filtered("x", frozenset({B, C}))
    assert (some.shown, some.current, some.place) == ((B, C), B, 1)
    assert some.moved(1).moved(1).current == B
    decided = some.decides(Decided(B, "approved")).decides(Decided(C, "declined"))
    assert (decided.current, decided.waiting) == ("", (A,))
    assert decided.takes_back().shown == (C,)
    other = THREE.decides(Decided(A, "approved")).filtered("x", frozenset({B})).takes_back()
    assert (other.current, other.shown) == (A, (A, B))
    assert THREE.filtered("y", frozenset()).current == ""
    assert some.filtered("", None).shown == (A, B, C)
