"""Files that are written completely or not at all: text, checksummed tensors, journals of result rows."""
