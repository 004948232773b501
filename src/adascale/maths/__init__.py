"""Pure functions on arrays: sorted activations, quantiles, conformal calibration, the split, metrics."""
