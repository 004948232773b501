"""Files that appear whole or not at all: text, checksummed tensors, journals of result rows."""
