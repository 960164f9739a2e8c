"""Access control: who may talk to the server, from where, how often and in which form."""
