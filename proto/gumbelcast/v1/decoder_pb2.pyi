from gumbelcast.v1 import session_pb2 as _session_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class OpenDecoderSessionRequest(_message.Message):
    __slots__ = ("session", "index", "first_message")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    FIRST_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    session: _session_pb2.Session
    index: int
    first_message: int
    def __init__(self, session: _Optional[_Union[_session_pb2.Session, _Mapping]] = ..., index: _Optional[int] = ..., first_message: _Optional[int] = ...) -> None: ...

class OpenDecoderSessionResponse(_message.Message):
    __slots__ = ("next_message",)
    NEXT_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    next_message: int
    def __init__(self, next_message: _Optional[int] = ...) -> None: ...

class ReceiveMessagesRequest(_message.Message):
    __slots__ = ("first_message", "count", "payload", "checksum")
    FIRST_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    first_message: int
    count: int
    payload: bytes
    checksum: int
    def __init__(self, first_message: _Optional[int] = ..., count: _Optional[int] = ..., payload: _Optional[bytes] = ..., checksum: _Optional[int] = ...) -> None: ...

class ReceiveMessagesResponse(_message.Message):
    __slots__ = ("next_message", "failures")
    NEXT_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    FAILURES_FIELD_NUMBER: _ClassVar[int]
    next_message: int
    failures: _containers.RepeatedCompositeFieldContainer[MessageFailure]
    def __init__(self, next_message: _Optional[int] = ..., failures: _Optional[_Iterable[_Union[MessageFailure, _Mapping]]] = ...) -> None: ...

class MessageFailure(_message.Message):
    __slots__ = ("message", "reason")
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    message: int
    reason: str
    def __init__(self, message: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class PutSideInformationRequest(_message.Message):
    __slots__ = ("session_digest", "first_message", "side_information")
    SESSION_DIGEST_FIELD_NUMBER: _ClassVar[int]
    FIRST_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    SIDE_INFORMATION_FIELD_NUMBER: _ClassVar[int]
    session_digest: bytes
    first_message: int
    side_information: _session_pb2.Tensor
    def __init__(self, session_digest: _Optional[bytes] = ..., first_message: _Optional[int] = ..., side_information: _Optional[_Union[_session_pb2.Tensor, _Mapping]] = ...) -> None: ...

class PutSideInformationResponse(_message.Message):
    __slots__ = ("held",)
    HELD_FIELD_NUMBER: _ClassVar[int]
    held: int
    def __init__(self, held: _Optional[int] = ...) -> None: ...

class ReadReconstructionsRequest(_message.Message):
    __slots__ = ("session_digest", "first_message", "count")
    SESSION_DIGEST_FIELD_NUMBER: _ClassVar[int]
    FIRST_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    session_digest: bytes
    first_message: int
    count: int
    def __init__(self, session_digest: _Optional[bytes] = ..., first_message: _Optional[int] = ..., count: _Optional[int] = ...) -> None: ...

class ReadReconstructionsResponse(_message.Message):
    __slots__ = ("first_message", "picks", "reconstructions", "failures")
    FIRST_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    PICKS_FIELD_NUMBER: _ClassVar[int]
    RECONSTRUCTIONS_FIELD_NUMBER: _ClassVar[int]
    FAILURES_FIELD_NUMBER: _ClassVar[int]
    first_message: int
    picks: _containers.RepeatedScalarFieldContainer[int]
    reconstructions: _session_pb2.Tensor
    failures: _containers.RepeatedCompositeFieldContainer[MessageFailure]
    def __init__(self, first_message: _Optional[int] = ..., picks: _Optional[_Iterable[int]] = ..., reconstructions: _Optional[_Union[_session_pb2.Tensor, _Mapping]] = ..., failures: _Optional[_Iterable[_Union[MessageFailure, _Mapping]]] = ...) -> None: ...

class CloseDecoderSessionRequest(_message.Message):
    __slots__ = ("session_digest",)
    SESSION_DIGEST_FIELD_NUMBER: _ClassVar[int]
    session_digest: bytes
    def __init__(self, session_digest: _Optional[bytes] = ...) -> None: ...

class CloseDecoderSessionResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetDecoderStatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetDecoderStatusResponse(_message.Message):
    __slots__ = ("protocol_version", "model_digest", "latent_dimension", "pool_variance", "side_shape", "sessions")
    PROTOCOL_VERSION_FIELD_NUMBER: _ClassVar[int]
    MODEL_DIGEST_FIELD_NUMBER: _ClassVar[int]
    LATENT_DIMENSION_FIELD_NUMBER: _ClassVar[int]
    POOL_VARIANCE_FIELD_NUMBER: _ClassVar[int]
    SIDE_SHAPE_FIELD_NUMBER: _ClassVar[int]
    SESSIONS_FIELD_NUMBER: _ClassVar[int]
    protocol_version: int
    model_digest: bytes
    latent_dimension: int
    pool_variance: float
    side_shape: _containers.RepeatedScalarFieldContainer[int]
    sessions: _containers.RepeatedCompositeFieldContainer[DecoderSessionStatus]
    def __init__(self, protocol_version: _Optional[int] = ..., model_digest: _Optional[bytes] = ..., latent_dimension: _Optional[int] = ..., pool_variance: _Optional[float] = ..., side_shape: _Optional[_Iterable[int]] = ..., sessions: _Optional[_Iterable[_Union[DecoderSessionStatus, _Mapping]]] = ...) -> None: ...

class DecoderSessionStatus(_message.Message):
    __slots__ = ("session_digest", "index", "next_message", "decoded", "failed")
    SESSION_DIGEST_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    NEXT_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    DECODED_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    session_digest: bytes
    index: int
    next_message: int
    decoded: int
    failed: int
    def __init__(self, session_digest: _Optional[bytes] = ..., index: _Optional[int] = ..., next_message: _Optional[int] = ..., decoded: _Optional[int] = ..., failed: _Optional[int] = ...) -> None: ...
