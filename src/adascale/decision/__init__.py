"""From `Outputs` to decisions: `OODDetector`, fitting and tuning, detector files, early decisions, folders."""
