"""Leave-one-network-out: every choice is made on all networks but one, and measured on that one."""
