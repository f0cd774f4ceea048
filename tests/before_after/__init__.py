"""Figures that a mend changed: each module measures one finding through the public functions."""
