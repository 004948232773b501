"""The figures of the AdaSCALE paper, and every table and figure of it as a study."""
