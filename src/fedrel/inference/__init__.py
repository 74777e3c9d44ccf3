"""Trained models at work: relations out of new sentences and documents."""
