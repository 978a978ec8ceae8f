"""Names the topic of a text in one word, so that a queue can recognise examples on the same topic.

The topic is the most frequent word, weighted by its length, common words of English and of code excluded. Cheap, the
same on every machine, and readable, but without understanding: two texts about one thing may have two topics, and a
text in another language than English may get one of its common words. Then the queue's shares are kept all the same,
only less evenly. Only the first CHARACTERS of the learned text are read.
"""

import re
from collections import Counter

CHARACTERS = 512
_WORDS = re.compile(r"[^\W\d_]{4,40}")
_COMMON = frozenset(
    """
    about above after again against also although always among another answer anything around because become been before
    being below better between both call called case cannot change changed check class code come command contains
    content correct could create current data default def does doing done down each either else empty error even ever
    every everything example false file files find first following follows found from function further general give
    given goes going good have having here however https import include including instead into itself just keep kind
    know language large last least less like line lines list little long look made make makes many maybe mean means
    might more most much must name need needs never next none nothing null number object often once only option other
    output over part path perhaps place please possible print problem put question quite rather read redacted result
    return returns right run running same says second seem self several shall should show since single small some
    something start state step still string such sure take takes tell test text than thank thanks that their them then
    there therefore these they thing things think this those though three through time together true type under unless
    until upon used user uses using value values very want wants well were what whatever when where whether which while
    will with within without word words work works would write written wrong your yours yourself
    """.split()
)


def topic(text: str) -> str:
    """The topic of a text, in lower case; may be empty."""
    counts = Counter(_WORDS.findall(text[:CHARACTERS].lower()))
    best, most = "", 0
    for word, count in counts.items():
        weight = count * len(word)
        if weight >= most and word not in _COMMON and (weight > most or word < best):
            best, most = word, weight
    return best
