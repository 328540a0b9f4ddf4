from gumbelcast.v1 import session_pb2 as _session_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class OpenSessionRequest(_message.Message):
    __slots__ = ("session",)
    SESSION_FIELD_NUMBER: _ClassVar[int]
    session: _session_pb2.Session
    def __init__(self, session: _Optional[_Union[_session_pb2.Session, _Mapping]] = ...) -> None: ...

class OpenSessionResponse(_message.Message):
    __slots__ = ("next_message", "decoders")
    NEXT_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    DECODERS_FIELD_NUMBER: _ClassVar[int]
    next_message: int
    decoders: _containers.RepeatedCompositeFieldContainer[DecoderState]
    def __init__(self, next_message: _Optional[int] = ..., decoders: _Optional[_Iterable[_Union[DecoderState, _Mapping]]] = ...) -> None: ...

class DecoderState(_message.Message):
    __slots__ = ("index", "address", "ready", "reason", "next_message", "lag")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    READY_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    NEXT_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    LAG_FIELD_NUMBER: _ClassVar[int]
    index: int
    address: str
    ready: bool
    reason: str
    next_message: int
    lag: int
    def __init__(self, index: _Optional[int] = ..., address: _Optional[str] = ..., ready: bool = ..., reason: _Optional[str] = ..., next_message: _Optional[int] = ..., lag: _Optional[int] = ...) -> None: ...

class EncodeRequest(_message.Message):
    __slots__ = ("session_digest", "first_message", "sources")
    SESSION_DIGEST_FIELD_NUMBER: _ClassVar[int]
    FIRST_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    SOURCES_FIELD_NUMBER: _ClassVar[int]
    session_digest: bytes
    first_message: int
    sources: _session_pb2.Tensor
    def __init__(self, session_digest: _Optional[bytes] = ..., first_message: _Optional[int] = ..., sources: _Optional[_Union[_session_pb2.Tensor, _Mapping]] = ...) -> None: ...

class EncodeResponse(_message.Message):
    __slots__ = ("first_message", "count", "payload_bytes", "picks")
    FIRST_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_BYTES_FIELD_NUMBER: _ClassVar[int]
    PICKS_FIELD_NUMBER: _ClassVar[int]
    first_message: int
    count: int
    payload_bytes: int
    picks: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, first_message: _Optional[int] = ..., count: _Optional[int] = ..., payload_bytes: _Optional[int] = ..., picks: _Optional[_Iterable[int]] = ...) -> None: ...

class AwaitDeliveryRequest(_message.Message):
    __slots__ = ("session_digest", "message", "seconds")
    SESSION_DIGEST_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    session_digest: bytes
    message: int
    seconds: float
    def __init__(self, session_digest: _Optional[bytes] = ..., message: _Optional[int] = ..., seconds: _Optional[float] = ...) -> None: ...

class AwaitDeliveryResponse(_message.Message):
    __slots__ = ("decoders",)
    DECODERS_FIELD_NUMBER: _ClassVar[int]
    decoders: _containers.RepeatedCompositeFieldContainer[DecoderState]
    def __init__(self, decoders: _Optional[_Iterable[_Union[DecoderState, _Mapping]]] = ...) -> None: ...

class CloseSessionRequest(_message.Message):
    __slots__ = ("session_digest",)
    SESSION_DIGEST_FIELD_NUMBER: _ClassVar[int]
    session_digest: bytes
    def __init__(self, session_digest: _Optional[bytes] = ...) -> None: ...

class CloseSessionResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetStatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetStatusResponse(_message.Message):
    __slots__ = ("protocol_version", "model_digest", "latent_dimension", "pool_variance", "source_shape", "decoder_addresses", "sessions", "gaussian", "codebook", "side", "region_bins")
    PROTOCOL_VERSION_FIELD_NUMBER: _ClassVar[int]
    MODEL_DIGEST_FIELD_NUMBER: _ClassVar[int]
    LATENT_DIMENSION_FIELD_NUMBER: _ClassVar[int]
    POOL_VARIANCE_FIELD_NUMBER: _ClassVar[int]
    SOURCE_SHAPE_FIELD_NUMBER: _ClassVar[int]
    DECODER_ADDRESSES_FIELD_NUMBER: _ClassVar[int]
    SESSIONS_FIELD_NUMBER: _ClassVar[int]
    GAUSSIAN_FIELD_NUMBER: _ClassVar[int]
    CODEBOOK_FIELD_NUMBER: _ClassVar[int]
    SIDE_FIELD_NUMBER: _ClassVar[int]
    REGION_BINS_FIELD_NUMBER: _ClassVar[int]
    protocol_version: int
    model_digest: bytes
    latent_dimension: int
    pool_variance: float
    source_shape: _containers.RepeatedScalarFieldContainer[int]
    decoder_addresses: _containers.RepeatedScalarFieldContainer[str]
    sessions: _containers.RepeatedCompositeFieldContainer[EncoderSessionStatus]
    gaussian: GaussianSource
    codebook: Codebook
    side: str
    region_bins: bool
    def __init__(self, protocol_version: _Optional[int] = ..., model_digest: _Optional[bytes] = ..., latent_dimension: _Optional[int] = ..., pool_variance: _Optional[float] = ..., source_shape: _Optional[_Iterable[int]] = ..., decoder_addresses: _Optional[_Iterable[str]] = ..., sessions: _Optional[_Iterable[_Union[EncoderSessionStatus, _Mapping]]] = ..., gaussian: _Optional[_Union[GaussianSource, _Mapping]] = ..., codebook: _Optional[_Union[Codebook, _Mapping]] = ..., side: _Optional[str] = ..., region_bins: bool = ...) -> None: ...

class GaussianSource(_message.Message):
    __slots__ = ("prior_variance", "side_variance")
    PRIOR_VARIANCE_FIELD_NUMBER: _ClassVar[int]
    SIDE_VARIANCE_FIELD_NUMBER: _ClassVar[int]
    prior_variance: float
    side_variance: float
    def __init__(self, prior_variance: _Optional[float] = ..., side_variance: _Optional[float] = ...) -> None: ...

class Codebook(_message.Message):
    __slots__ = ("words", "bins", "list")
    WORDS_FIELD_NUMBER: _ClassVar[int]
    BINS_FIELD_NUMBER: _ClassVar[int]
    LIST_FIELD_NUMBER: _ClassVar[int]
    words: int
    bins: int
    list: bool
    def __init__(self, words: _Optional[int] = ..., bins: _Optional[int] = ..., list: bool = ...) -> None: ...

class EncoderSessionStatus(_message.Message):
    __slots__ = ("session_digest", "next_message", "decoders", "oldest_message")
    SESSION_DIGEST_FIELD_NUMBER: _ClassVar[int]
    NEXT_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    DECODERS_FIELD_NUMBER: _ClassVar[int]
    OLDEST_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    session_digest: bytes
    next_message: int
    decoders: _containers.RepeatedCompositeFieldContainer[DecoderState]
    oldest_message: int
    def __init__(self, session_digest: _Optional[bytes] = ..., next_message: _Optional[int] = ..., decoders: _Optional[_Iterable[_Union[DecoderState, _Mapping]]] = ..., oldest_message: _Optional[int] = ...) -> None: ...
