"""Codebooks: sources whose pool is a learned alphabet of N words, split into L_max fixed bins (section 2's discrete W).

Word w lies in bin w mod L_max, as in every discrete session. A codebook is made for one rate and for one way of
coding: ``gls`` weighs the words of a bin at each decoder, and serves any number of decoders, with private races or
one shared race; ``list`` gives decoder k the k-th word of the bin, and so K = N / L_max decoders.
"""

from __future__ import annotations

from dataclasses import dataclass

from shared_rng.card import ModelCard
from shared_rng.errors import CodecError, SessionMismatch
from shared_rng.session import Coupling, Session


@dataclass(frozen=True)
class Codebook:
    """What both halves of a codebook model know of it.

    Attributes:
        words: N.
        bins: L_max.
        coupling: ``gls`` or ``list``, what the codebook was trained for.
        digest: the model card's digest.
    """

    words: int
    bins: int
    coupling: Coupling
    digest: bytes

    @classmethod
    def from_card(cls, card: ModelCard) -> Codebook:
        """The codebook of a card.

        Raises:
            CodecError: a field of the architecture is missing or out of range.
        """
        words, bins, coupling = card.size("words"), card.size("bins"), card.architecture.get("coupling")
        if coupling not in ("gls", "list"):
            raise CodecError("card architecture.coupling", repr(coupling), "gls or list")
        if words % bins:
            raise CodecError("card architecture.words", words, f"a multiple of architecture.bins, {bins}")
        return cls(words, bins, coupling, card.digest)

    def require(self, session: Session) -> None:
        """Check that a session is one of this codebook.

        Raises:
            SessionMismatch: a field differs; it names the field, what came and what was expected.
        """
        session.require(model_digest=self.digest, pool_kind="discrete", pool_size=self.words, bins=self.bins)
        if (session.coupling == "list") != (self.coupling == "list"):
            expected = "list" if self.coupling == "list" else "gls or baseline"
            raise SessionMismatch("coupling", session.coupling, expected)
