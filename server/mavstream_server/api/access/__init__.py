"""Access control: hosts and origins, wrong tokens, quotas, connection limits, TLS and the audit log."""
