"""From image files and arrays to preprocessed batches; corruptions of images and outliers made from them."""
