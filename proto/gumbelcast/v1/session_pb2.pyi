from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class PoolKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    POOL_KIND_UNSPECIFIED: _ClassVar[PoolKind]
    POOL_KIND_GAUSSIAN: _ClassVar[PoolKind]
    POOL_KIND_DISCRETE: _ClassVar[PoolKind]
    POOL_KIND_LATTICE: _ClassVar[PoolKind]

class Coupling(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    COUPLING_UNSPECIFIED: _ClassVar[Coupling]
    COUPLING_GLS: _ClassVar[Coupling]
    COUPLING_BASELINE: _ClassVar[Coupling]
    COUPLING_LIST: _ClassVar[Coupling]

class Binning(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    BINNING_UNSPECIFIED: _ClassVar[Binning]
    BINNING_RANDOM: _ClassVar[Binning]
    BINNING_MODULO: _ClassVar[Binning]
    BINNING_REGION: _ClassVar[Binning]

class RaceOrder(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    RACE_ORDER_UNSPECIFIED: _ClassVar[RaceOrder]
    RACE_ORDER_INDEX: _ClassVar[RaceOrder]
    RACE_ORDER_ARRIVAL: _ClassVar[RaceOrder]
POOL_KIND_UNSPECIFIED: PoolKind
POOL_KIND_GAUSSIAN: PoolKind
POOL_KIND_DISCRETE: PoolKind
POOL_KIND_LATTICE: PoolKind
COUPLING_UNSPECIFIED: Coupling
COUPLING_GLS: Coupling
COUPLING_BASELINE: Coupling
COUPLING_LIST: Coupling
BINNING_UNSPECIFIED: Binning
BINNING_RANDOM: Binning
BINNING_MODULO: Binning
BINNING_REGION: Binning
RACE_ORDER_UNSPECIFIED: RaceOrder
RACE_ORDER_INDEX: RaceOrder
RACE_ORDER_ARRIVAL: RaceOrder

class Session(_message.Message):
    __slots__ = ("protocol_version", "seed", "seed_digest", "pool_size", "bins", "decoders", "latent_dimension", "pool_kind", "pool_variance", "coupling", "model_digest", "digest", "cell_width", "race_order", "binning")
    PROTOCOL_VERSION_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    SEED_DIGEST_FIELD_NUMBER: _ClassVar[int]
    POOL_SIZE_FIELD_NUMBER: _ClassVar[int]
    BINS_FIELD_NUMBER: _ClassVar[int]
    DECODERS_FIELD_NUMBER: _ClassVar[int]
    LATENT_DIMENSION_FIELD_NUMBER: _ClassVar[int]
    POOL_KIND_FIELD_NUMBER: _ClassVar[int]
    POOL_VARIANCE_FIELD_NUMBER: _ClassVar[int]
    COUPLING_FIELD_NUMBER: _ClassVar[int]
    MODEL_DIGEST_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    CELL_WIDTH_FIELD_NUMBER: _ClassVar[int]
    RACE_ORDER_FIELD_NUMBER: _ClassVar[int]
    BINNING_FIELD_NUMBER: _ClassVar[int]
    protocol_version: int
    seed: bytes
    seed_digest: bytes
    pool_size: int
    bins: int
    decoders: int
    latent_dimension: int
    pool_kind: PoolKind
    pool_variance: float
    coupling: Coupling
    model_digest: bytes
    digest: bytes
    cell_width: float
    race_order: RaceOrder
    binning: Binning
    def __init__(self, protocol_version: _Optional[int] = ..., seed: _Optional[bytes] = ..., seed_digest: _Optional[bytes] = ..., pool_size: _Optional[int] = ..., bins: _Optional[int] = ..., decoders: _Optional[int] = ..., latent_dimension: _Optional[int] = ..., pool_kind: _Optional[_Union[PoolKind, str]] = ..., pool_variance: _Optional[float] = ..., coupling: _Optional[_Union[Coupling, str]] = ..., model_digest: _Optional[bytes] = ..., digest: _Optional[bytes] = ..., cell_width: _Optional[float] = ..., race_order: _Optional[_Union[RaceOrder, str]] = ..., binning: _Optional[_Union[Binning, str]] = ...) -> None: ...

class Tensor(_message.Message):
    __slots__ = ("type", "shape", "data")
    class Type(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        TYPE_UNSPECIFIED: _ClassVar[Tensor.Type]
        TYPE_UINT8: _ClassVar[Tensor.Type]
        TYPE_FLOAT32: _ClassVar[Tensor.Type]
        TYPE_FLOAT64: _ClassVar[Tensor.Type]
    TYPE_UNSPECIFIED: Tensor.Type
    TYPE_UINT8: Tensor.Type
    TYPE_FLOAT32: Tensor.Type
    TYPE_FLOAT64: Tensor.Type
    TYPE_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    type: Tensor.Type
    shape: _containers.RepeatedScalarFieldContainer[int]
    data: bytes
    def __init__(self, type: _Optional[_Union[Tensor.Type, str]] = ..., shape: _Optional[_Iterable[int]] = ..., data: _Optional[bytes] = ...) -> None: ...
