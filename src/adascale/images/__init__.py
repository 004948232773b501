"""From files and arrays to normalised inputs; corruptions and outliers made from images."""
