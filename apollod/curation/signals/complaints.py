"""Recognises reports of a problem, anywhere in a message of a person.

Unlike the phrases of `follow_ups.py`, which begin a message, these are searched for in each sentence. A sentence that
supposes (`if it doesn't work`) or asks for care (`make sure that nothing breaks`) reports nothing. Pasted errors are
searched for in all of the text, since people often paste them without a word.
"""

import re

import re2  # type: ignore[import-untyped]

from apollod.curation.signals.flag import expressions

_ALPHABETIC = expressions("complaints", "latin")
_AROUND = re.compile(r"\(\?<?[=!]")
_LATIN = re.compile("|".join(_ALPHABETIC), re.MULTILINE)
_LATIN_ASCII = re2.compile("(?m)" + "|".join(one for one in _ALPHABETIC if not _AROUND.search(one)))
"""Takes 20 us where `_LATIN` takes 1,300; in ASCII both agree on words and their borders"""
_LATIN_AROUND = re.compile("|".join(one for one in _ALPHABETIC if _AROUND.search(one)), re.MULTILINE)
"""Patterns with lookaround, which RE2 does not support"""
_OTHER = re.compile("|".join(expressions("complaints", "other")), re.MULTILINE)
_ASKS = re.compile(
    r"(?:(?:ok|okay|now|next|also|and|please|then|but|alright|great|yes),? )*(?:(?:if|in case|what if|unless)\b"
    r"|(?:make sure|ensure|be sure|can you make sure|should (?:i|we))\b"
    r"|(?:add|create|write|make (?!it (?:work|not))|implement|generate|build (?:a|an|the)|include|explain|describe"
    r"|translate|document|handle|log|list|extend|introduce|prepare|draft|how (?:do|does|can|would|should|to|long|many)"
    r"|what(?:'s| is| are| does| do| errors| happens| about)|are there|is there|i (?:also )?(?:want (?:a|an|to)"
    r"|need (?:a|an|to)|would like|'d like)|we (?:need|want) to|let'?s|let me|please let)\b"
    r"|(?:can|could|would) (?:you|we) (?:make|add|have|also|please (?:add|make))\b"
    r"|si\b|s'il|wenn|falls|se\b|caso|est-ce que|agreg[aá]|a[ñn]ad[ei]|crea(?:r|me)?\b|ajoute|cr[ée]e|füge|erstell"
    r"|schreib|baue|adicione|crie|добавь|создай|напиши|если|如果|假如|万一|添加|新增|增加|创建|もし)"
)
"""Beginnings of sentences that suppose something or ask for something new, and report nothing"""
_WISH = re.compile(r"\b(?:can|could|would) (?:you|we) (?:please )?(?:make|add|have|also)\b")
"""Words that introduce a request: the rest of the sentence states a wish, not a problem"""
_ELSEWHERE = re.compile(r"\b(?:another|other|old|previous) (?:project|job|repo|company|app)\b")
_SENTENCE = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])|\n+|…")
_ERROR = re.compile(
    r"\b(?:[A-Z]\w*)?(?:Error|Exception)\b ?[:({\[]|\bTraceback \(most recent|\bFailed to (?:compile|load|fetch|run)\b"
    r"|\bBUILD FAILED\b|\bnpm (?:ERR!|error)|\bUncaught\b|\bpanic: |\bcommand not found\b|\bENOENT\b"
    r"|\bSegmentation fault|\b(?:fatal|FATAL|ERROR)\b ?:|\bexit(?:ed with)? (?:code|status) [1-9]|\bno function clause"
    r"|\bAPPLICATION FAILED\b"
    r"|\b(?:TS|E)\d{4}:|\berror\[E\d+\]|\[ERROR\]|\bpermission denied\b|\[Error\]|\bException in thread\b"
    r"|\b[45]0\d \([A-Z][\w ]+\)"
    r"|\bUnexpected token\b|\bcannot be bound\b|\bis not recognized as\b|❌"
)
_ASKS_FOR_LOGS = re.compile(
    r"\b(?:share|send|paste|show me|provide|post|tell me|let me (?:know|see)|copy)\b[^.\n]{0,80}"
    r"\b(?:logs?|output|console|errors?|results?|see|happens|appears?|message)\b"
    r"|\b(?:compart\w+|mu[eé]str\w+|pas[aá]me|mand[aá]me|env[ií]\w+|dec[ií]me|dime)\b[^.\n]{0,80}"
    r"|\b(?:dites|dis|envoie|envoyez|montre\w*|colle)[- ]?moi\b|(?:发给我|告诉我|提供|贴给我|粘贴)"
    r"|(?:教えて|貼って|送って)"
    r"|(?:пришлите|покажите|скопируйте|отправьте)",
    re.IGNORECASE,
)
_ASKS_WHAT = re.compile(r"\bwhat(?:'s| is| does| are) (?:this|that|it|these)\b", re.IGNORECASE)
_CONDITION = re.compile(r"\b(?:if|si|wenn|falls|se|если)\b|如果|若|もし|場合", re.IGNORECASE)
ANSWER_END = 500  # characters at the end of an answer that are searched for a request


def complains(own: str) -> bool:
    """True if one of the sentences (lower case) reports a problem."""
    return any(_reports(sentence.strip()) for sentence in _SENTENCE.split(own))


def _reports(said: str) -> bool:
    if not said or _ASKS.match(said) or _ELSEWHERE.search(said):
        return False
    found = reported_at(said)
    wish = _WISH.search(said) if found >= 0 else None
    if found >= 0 and (wish is None or wish.start() > found):
        return True
    return not said.isascii() and _OTHER.search(said) is not None


def reported_at(said: str) -> int:
    """Index of the first words of a language in Latin letters that report a problem; -1: there are none."""
    patterns = (_LATIN_ASCII, _LATIN_AROUND) if said.isascii() else (_LATIN,)
    return min((found.start() for one in patterns if (found := one.search(said)) is not None), default=-1)


def error_pasted(text: str, answer: str) -> bool:
    """True if the message contains a pasted error that the answer did not ask for."""
    return _ERROR.search(text) is not None and not _ASKS_WHAT.search(text) and not asks_for_logs(answer)


def asks_for_logs(answer: str) -> bool:
    """True if the answer ends by asking to see an output; `If it fails, send me the log` does not count."""
    end = answer[-ANSWER_END:]
    for found in _ASKS_FOR_LOGS.finditer(end):
        begin = max(end.rfind(mark, 0, found.start()) for mark in (". ", "\n", "。", "! ", "? "))
        if not _CONDITION.search(end, max(begin, 0), found.start()):
            return True
    return False
