"""Errors, the types that pass between rooms, answers, optional imports. This room imports no other."""
