"""Detects the language of a short text, among those that have frames."""

import re

_WORDS = {
    "en": "the of is are was were and to in on at a an what who where when which how does do did has have it by "
    "for my not",
    "de": "der die das und ist sind war nicht auf von mit ein eine wer wo wann welche welcher wie hat haben im "
    "den dem für es bei gehört heißt wird in liegt steht lautet auch",
    "fr": "le la les et est sont était pas sur de du des un une qui où quand quel quelle comment a ont dans au "
    "avec il ne d l se sa son",
    "es": "el la los las y es son era no en de del un una quién dónde cuándo cuál cómo tiene tienen con se su "
    "por está qué",
}
_OF = {
    word: [lang for lang in _WORDS if word in _WORDS[lang].split()]
    for words in _WORDS.values()
    for word in words.split()
}
_HAN, _KANA = re.compile(r"[\u3400-\u9fff]"), re.compile(r"[\u3040-\u30ff]")


def language_of(text: str) -> str:
    """en, de, fr, es or zh, by typical words; English if nothing points to another language."""
    if _KANA.search(text):
        return "en"
    if len(_HAN.findall(text)) * 2 > len(re.findall(r"[a-z]+", text, re.IGNORECASE)):
        return "zh"
    votes = dict.fromkeys(_WORDS, 0.0)
    for word in re.findall(r"[^\W\d_]+", text.lower()):
        for lang in _OF.get(word, ()):
            votes[lang] += 1 / len(_OF[word])
    if re.search(r"[¿¡ñ]", text.lower()):
        votes["es"] += 1
    if re.search(r"[ßäöü]", text.lower()):
        votes["de"] += 0.5
    return max(votes, key=lambda lang: (votes[lang], lang == "en"))
