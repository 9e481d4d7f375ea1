"""What pages and command line say alike of a certificate."""

from __future__ import annotations

from cluster_models.plan import Certificate


def unpriced(certificate: Certificate) -> int:
    """Candidates that there was no time to look at; only the bound is known of them."""
    looked_at = (certificate.candidates_infeasible, certificate.candidates_pruned, certificate.candidates_placed)
    return certificate.candidates_total - sum(looked_at)
