"""The intermediate-noise model, its exact conditionals, and the Gibbs sampler made of them."""

from jaxbnn.gibbs.chain import GibbsPosition
from jaxbnn.gibbs.interweave import InterweaveInfo, InterweaveState, interweave
from jaxbnn.gibbs.interwoven import (
    InterwovenInfo,
    InterwovenState,
    gibbs_with_moves,
    interwoven_gibbs,
)
from jaxbnn.gibbs.latents import sample_inputs, sample_pooled
from jaxbnn.gibbs.logit_scales import logit_scale_moves
from jaxbnn.gibbs.model import IntermediateNoise
from jaxbnn.gibbs.noncentred_scales import (
    NoncentredScaleInfo,
    NoncentredScaleState,
    noncentred_scale_moves,
)
from jaxbnn.gibbs.pieces import Piece, PiecewiseLinear, activation_pieces
from jaxbnn.gibbs.pooling import CollapsedPooling, collapse_pooling
from jaxbnn.gibbs.pre_activations import sample_pre_activations
from jaxbnn.gibbs.probit import sample_binary_logit, sample_logits, satisfying_logits
from jaxbnn.gibbs.redraws import RedrawsInfo, RedrawsState, redraw_noisy_units
from jaxbnn.gibbs.sampler import GibbsInfo, GibbsState, gibbs_sampler
from jaxbnn.gibbs.scale_moves import ScaleMovesInfo, ScaleMovesState, scale_moves
from jaxbnn.gibbs.turns import TurnsInfo, TurnsState, turn_units
from jaxbnn.gibbs.weights import sample_bias, sample_weights, sample_weights_and_bias

__all__ = [
    "GibbsPosition",
    "IntermediateNoise",
    "collapse_pooling",
    "gibbs_sampler",
    "gibbs_with_moves",
    "interweave",
    "interwoven_gibbs",
    "logit_scale_moves",
    "noncentred_scale_moves",
    "redraw_noisy_units",
    "sample_bias",
    "sample_binary_logit",
    "sample_inputs",
    "sample_logits",
    "sample_pooled",
    "sample_pre_activations",
    "sample_weights",
    "sample_weights_and_bias",
    "scale_moves",
    "turn_units",
]
