"""Phrases by which people say that an answer was wrong or is to be undone, as pieces of regular expressions.

English first, then a few of German, French, Spanish and Chinese. They began as the list of a published tool's tests
(index of the ecosystem's formats, 1.4) and were tuned on `benchmarks/signal_sample/tuning.txt`.
"""

FILLERS = (
    "hmm+", "hm", "oh", "ooc", "ok", "okay", "well", "so", "um", "uh", "ehm?", "sorry", "but", "and", "wait", "please",
    "ugh", "argh", "hey", "also", "äh", "bitte", "ach", "pardon", "oye", "perdona",
)  # fmt: skip
"""Words that may precede the first meaningful one"""

PRAISE = (
    "thanks", "thank you", "thx", "cheers", "perfect", "great", "excellent", "awesome", "lovely", "works", "nice",
    "no (?:problem|worries|worry|need|rush|hurry|more|further|other|questions?|complaints?|doubt|matter|thanks)",
    "never ?mind", "all good", "looks good", "like (?:that|it|this) better",
    "(?:that|it|this)(?:'s| is) (?:fine|good|great|ok|okay|right|correct|it|all|perfect|better)",
    "danke", "läuft", "passt", "alles gut", "gut so",
    "merci", "parfait", "super", "de rien", "rien d'autre",
    "gracias", "perfecto", "no hay problema", "nada", "todo bien", "está bien",
)  # fmt: skip
NEGATED = ("not", "isn't", "don't", "doesn't", "but", "except", "aber", "mais", "pero")
"""Words that cancel praise in the same sentence"""

_NOT_DONE = "(?:doesn't|does not|didn't|won't|isn't|is not)"
_THEY_DID = "(?:delet|remov|chang|drop|renam|add|us(?:e|ing)|touch|break|broke|replac|rewr|overwr|mov|ignor|skip)"
_AFTER_NO = (
    "use|it|it's|that|that's|the|this|i|i'm|i've|you|you're|we|not|don't|its|on|in|with|only|just|keep|make|put|try"
    "|stop|wrong|because"
)
WRONG_AT_FIRST = (
    # A flat no needs a mark behind it, or a usual follower.
    r"no+pe\b", r"nah\b", "no+ ?[,.!:;–—-]", "no+$", rf"no+ (?:{_AFTER_NO})\b",
    r"wrong\b", r"incorrect\b", r"untrue\b",
    r"not (?:correct|right|quite|true|exactly|what|all|that(?! i\b)|there|the|like|on|in|this)\b",
    r"that(?:'s| is| was) (?:just |still |simply )?(?:not\b|wrong|incorrect|false|outdated|untrue|nonsense|the wrong)",
    r"that (?:isn't|wasn't|doesn't|didn't)\b", r"this (?:isn't|is not|is wrong|doesn't|didn't)\b",
    f"(?:it|that|this) (?:still )?{_NOT_DONE} "
    "(?:work|compile|build|run|match|start|fix|exist|pass|help|right|what|correct)",
    r"(?:it'?s|it is|is|they'?re|tests? (?:is|are))? ?still (?:fail|broken|not\b|the same|wrong|too\b|get|red\b|crash"
    r"|an? error|errors?\b|doesn't|does not|isn't|missing|there\b)",
    "(?:the )?same (?:error|problem|issue|result|thing|bug|crash|failure)",
    r"i (?:said|meant|asked (?:for|you)|wanted|told you|mean)\b",
    "you (?:forgot|missed|misunderstood|misread|ignored|broke|skipped|overlooked|did not|didn't|left out"
    r"|were supposed)\b",
    r"you(?:'re| are) (?:wrong|mistaken|missing)\b",
    rf"why (?:did|would|do|have|are) you (?:\w+ )?{_THEY_DID}",
    r"(?:it |this |that |the \w+ )?should(?:n't| not)? (?:be|have|say|read|use|come|go|only)\b",
    r"don't (?:use|touch|change|delete|remove)\b",
    "other way a?round", r"the other \w+[,.!]",
    r"are you sure\? \w", r"(?:check|read|look|count|think) (?:it |that )?again\b",
    "(?:nein|nö|nee)(?=[ ,.!])", r"falsch\b", "das (?:stimmt nicht|ist (?:falsch|nicht)|war nicht)", "stimmt nicht",
    "(?:es |das )?(?:geht|funktioniert|klappt) (?:immer noch |leider |so )?nicht",
    "immer noch (?:nicht|falsch|der|das|kaputt)", "ich (?:meinte|wollte|sagte)", "du hast .{0,60}vergessen",
    r"nicht (?:so|das|den|die|dort)\b",
    "non(?=[ ,.!])", r"(?:c'est )?faux\b", "ce n'est pas", "c'est pas", "pas ça", "toujours pas",
    "(?:ça|cela) ne (?:marche|fonctionne) (?:pas|toujours)", "(?:tu as|vous avez) oublié", "je (?:voulais|parlais)",
    r"eso no\b", r"incorrecto\b", "no es (?:eso|lo|así|correcto)", r"no (?:funciona|sirve|quiero|era)\b",
    "te (?:olvidaste|has olvidado)", "quise decir", "me refería", "sigue (?:sin|fallando|igual)",
    "不对", "不是", "错了", "还是不",
)  # fmt: skip
"""Beginnings of messages that make them corrections"""

WRONG = (
    r"\byou(?:'re| are) (?:wrong|mistaken)\b", r"\byou (?:forgot|misunderstood|misread)\b",
    r"\bnot what i (?:asked|wanted|meant|said)", r"\bi (?:asked for|said|meant)\b.{1,60},? not\b",
    r"\b(?:are|is) still (?:broken|failing|red|wrong)\b",
    r"\b(?:file|function|method|option|flag|command|package|module|page) (?:doesn't|does not) exist",
    r"\bdoesn't (?:match|compile|work) (?:either|at all|any ?more)\b",
    r"\bno era eso\b", r"\bno es lo que\b", r"\bpas ce que j",
)  # fmt: skip
"""Phrases that are unambiguous anywhere in the first characters"""

ACTUALLY = r"(?:actually|eigentlich|en fait|en realidad)\b,? ?(?!can\b|could\b|would you|do you|also|never|let me)"
INSTEAD = (
    "should", "shouldn't", "must", "needs? to", "instead", "rather", "not", "wrong", "meant", "isn't", "don't", "use",
    "only",
)  # fmt: skip
"""Words that make a sentence with `actually` at its beginning a correction"""

_ASKED = (
    "no+", "nope", "yeah", "yes", "just", "now", "then", "you can", "actually", "(?:can|could|would) you",
    "i want you to", "let'?s", "you (?:should|must)",
    "we (?:should|need to)",
)  # fmt: skip
_OBJECT = (
    r"(?:(?:that|this|it|these|those|them|everything|all)\b|what you\b|(?:your|my) \w+"
    r"|the (?:last|previous|changes?|edits?|commit|rename|refactor\w*)\b)"
)
UNDO_ASKED = rf"(?:(?:{'|'.join(_ASKED)})\b[ ,.!]*(?:please )?)*"
UNDO = (
    rf"(?:undo|revert|unwind|roll ?back|take back|back out)(?: please)?(?: {_OBJECT}| ?[.!,]|$)",
    rf"(?:roll|take) {_OBJECT} back\b", rf"(?:put|change|turn|move|set|switch|bring) {_OBJECT} back\b",
    r"(?:go|get|switch) back to (?:the |how |what |my )?(?:old|previous|earlier|last|original|it was|former)\b",
    r"restore (?:the |my )?(?:old|previous|original|earlier|former)\b", r"git (?:revert|checkout --|restore)\b",
    r"mach(?:e|t)? (?:das|es|die|den|alles).{0,40}\b(?:rückgängig|zurück)\b",
    "(?:das )?(?:bitte )?(?:wieder )?rückgängig",    "nimm (?:das|es|die).{0,20}zurück",
    r"annule[rz]?\b", "reviens (?:en arrière|à)", r"remets\b",
    r"deshaz(?:lo)?\b", r"revierte\b", r"vuelve a (?:la|lo)\b",
)  # fmt: skip
"""Requests behind `UNDO_ASKED`. The object must refer to the agent's work, since people also undo saddles"""
