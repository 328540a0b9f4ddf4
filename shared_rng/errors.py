"""The one error type of the library: it names the operand, what was given and what was expected."""

from __future__ import annotations

from typing import ClassVar


class CodecError(ValueError):
    """Bad input at a boundary.

    Attributes:
        operand: the name of the argument or field at fault.
        given: what came.
        expected: what would have been accepted.
        status: name of the gRPC status that a service answers with.
    """

    status: ClassVar[str] = "INVALID_ARGUMENT"

    def __init__(self, operand: str, given: object, expected: object) -> None:
        self.operand = operand
        self.given = given
        self.expected = expected
        super().__init__(f"{operand}: got {given}, expected {expected}")

    def __reduce__(self) -> tuple[type[CodecError], tuple[str, object, object]]:
        """Let the error cross process boundaries."""
        return type(self), (self.operand, self.given, self.expected)


class SessionMismatch(CodecError):
    """The two ends hold different values for a session field (design rule: checked, never assumed)."""

    status = "FAILED_PRECONDITION"


class SequenceError(CodecError):
    """A batch does not start at the message number that is due."""

    status = "OUT_OF_RANGE"


class MissingSideInformation(CodecError):
    """A message arrived for which the decoder holds no side information."""

    status = "FAILED_PRECONDITION"
