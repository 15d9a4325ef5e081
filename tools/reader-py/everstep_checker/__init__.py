"""The checker: judges a whole repository (page 13), on top of the reader; and the command of both."""
