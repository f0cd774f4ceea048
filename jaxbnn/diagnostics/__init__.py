"""R-hat, effective sample size, thermalization and discrepancies: arrays in, numbers out."""

from jaxbnn.diagnostics.autocovariance import autocorrelation
from jaxbnn.diagnostics.blockwise import BlockwiseRhat, blockwise_rhat
from jaxbnn.diagnostics.covariance_distances import covariance_distance
from jaxbnn.diagnostics.covariances import CovarianceAgreement, covariance_agreement
from jaxbnn.diagnostics.discrepancies import (
    Discrepancy,
    kernel_stein_discrepancy,
    maximum_mean_discrepancy,
)
from jaxbnn.diagnostics.energy_errors import energy_error_in_words
from jaxbnn.diagnostics.ess import ess_bulk, ess_geyer, ess_tail, ess_tfp
from jaxbnn.diagnostics.evidence import (
    Evidence,
    bennett_acceptance_ratio,
    thermodynamic_integration,
)
from jaxbnn.diagnostics.functions import evaluate
from jaxbnn.diagnostics.merge import merge_time
from jaxbnn.diagnostics.monte_carlo_error import mcse
from jaxbnn.diagnostics.multivariate import multivariate_ess
from jaxbnn.diagnostics.rhat import (
    folded_split_rhat,
    gelman_rubin,
    rank_rhat,
    rhat_brooks_gelman,
    rhat_variance_ratio,
    split_rhat,
)
from jaxbnn.diagnostics.score import score_time
from jaxbnn.diagnostics.settling import SettlingTime
from jaxbnn.diagnostics.stationarity import stationarity_time
from jaxbnn.diagnostics.table import Summary, summary
from jaxbnn.diagnostics.tempering import by_replica, equalise_rejections, swap_acceptance

__all__ = [
    "autocorrelation",
    "bennett_acceptance_ratio",
    "blockwise_rhat",
    "by_replica",
    "covariance_agreement",
    "covariance_distance",
    "energy_error_in_words",
    "equalise_rejections",
    "ess_bulk",
    "ess_geyer",
    "ess_tail",
    "ess_tfp",
    "evaluate",
    "folded_split_rhat",
    "gelman_rubin",
    "kernel_stein_discrepancy",
    "maximum_mean_discrepancy",
    "mcse",
    "merge_time",
    "multivariate_ess",
    "rank_rhat",
    "rhat_brooks_gelman",
    "rhat_variance_ratio",
    "score_time",
    "split_rhat",
    "stationarity_time",
    "summary",
    "swap_acceptance",
    "thermodynamic_integration",
]
