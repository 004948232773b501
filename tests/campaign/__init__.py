"""A seeded, bounded campaign against the promises under attack, faults and load: ``python -m tests.campaign``."""
