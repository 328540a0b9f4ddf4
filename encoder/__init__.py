"""The encoder: source samples in, messages of log2(L_max) bits out."""

from encoder.codec import EncodedBatch, Encoder
from encoder.model import EncoderModel, load_encoder_model

__all__ = ["EncodedBatch", "Encoder", "EncoderModel", "load_encoder_model"]
