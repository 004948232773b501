"""Training of the networks of the paper, ISH and adversarial training."""
