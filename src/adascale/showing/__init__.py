"""What people see of a detector: the page of scored images, the page of an explanation, displays in notebooks."""
