"""From images to `Outputs`: perturbed views, batches, and the cache of activations."""
