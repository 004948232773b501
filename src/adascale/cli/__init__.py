"""The command line: thin verbs. No other room imports this one."""
