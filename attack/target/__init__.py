"""The server under attack, and the bystanders that must not notice the attack."""
