"""What an attacker really gets out of what crossed: attacks on recorded rounds, by method and defence."""
