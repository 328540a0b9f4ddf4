"""The one error type of the library: it names the operand, what was given and what was expected."""

from __future__ import annotations


class CodecError(ValueError):
    """Bad input at a boundary.

    Attributes:
        operand: the name of the argument or field at fault.
        given: what came.
        expected: what would have been accepted.
    """

    def __init__(self, operand: str, given: object, expected: object) -> None:
        self.operand = operand
        self.given = given
        self.expected = expected
        super().__init__(f"{operand}: got {given}, expected {expected}")


class SessionMismatch(CodecError):
    """The two ends hold different values for a session field (design rule: checked, never assumed)."""


class SequenceError(CodecError):
    """A batch does not start at the message number that is due."""


class MissingSideInformation(CodecError):
    """A message arrived for which the decoder holds no side information."""
