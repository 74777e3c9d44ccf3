"""Networks that classify relations: one folder a kind, and what all of them share."""
