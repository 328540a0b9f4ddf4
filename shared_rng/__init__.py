"""Common randomness and Gumbel-max list sampling: all that both ends must compute identically."""

from shared_rng.batches import checked_batch, load_npy
from shared_rng.card import ModelCard, find_model, load_card
from shared_rng.codebook import Codebook
from shared_rng.errors import CodecError, MissingSideInformation, SequenceError, SessionMismatch
from shared_rng.messages import pack, packed_size, unpack
from shared_rng.pool import BinCandidates, bin_candidates, bin_labels, label_of, samples
from shared_rng.selection import Selection, decoder_select, encoder_select, list_select, require_picks, selected_labels
from shared_rng.session import Binning, Coupling, PoolKind, Session

__all__ = [
    "BinCandidates",
    "Binning",
    "Codebook",
    "CodecError",
    "Coupling",
    "MissingSideInformation",
    "ModelCard",
    "PoolKind",
    "Selection",
    "SequenceError",
    "Session",
    "SessionMismatch",
    "bin_candidates",
    "bin_labels",
    "checked_batch",
    "decoder_select",
    "encoder_select",
    "find_model",
    "label_of",
    "list_select",
    "load_card",
    "load_npy",
    "pack",
    "packed_size",
    "require_picks",
    "samples",
    "selected_labels",
    "unpack",
]
