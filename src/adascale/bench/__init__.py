"""Benchmarks: suites, runs, figures and comparisons."""

SUITES: tuple[str, ...] = ("digits", "cifar10", "cifar100", "imagenet200", "imagenet", "imagenet-paper")
