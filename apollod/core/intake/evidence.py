"""What a line of a log shows about an answer, before it is recorded."""

from hashlib import blake2b

import msgspec

from apollod.core.intake.events import Polarity


class Evidence(msgspec.Struct, frozen=True):
    """See `SignalFlagged`, whose fields these are."""

    kind: str
    polarity: Polarity
    strength: float
    answer: str = ""
    session: str = ""
    records: tuple[str, ...] = ()
    quote: str = ""

    @property
    def id(self) -> str:
        """Hex of BLAKE2b-128 of what it says of which answer: also a fork of the session, or a log that was written
        anew, says it once. An answer without a key is known by session and record."""
        about = (self.answer,) if self.answer else (self.session, *self.records[:1])
        return blake2b("\x00".join((self.kind, self.polarity, *about)).encode(), digest_size=16).hexdigest()
