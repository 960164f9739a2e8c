"""Everything a row meets before the log: producer sessions, checks, flushing, retention."""
