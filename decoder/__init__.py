"""The decoder: messages and private side information in, reconstructions out."""

from decoder.codec import DecodedBatch, Decoder
from decoder.model import DecoderModel, load_decoder_model

__all__ = ["DecodedBatch", "Decoder", "DecoderModel", "load_decoder_model"]
