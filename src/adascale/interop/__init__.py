"""Between this package and others of its field: OpenOOD and pytorch-ood."""
