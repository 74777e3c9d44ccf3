"""Reports, tables and plots of finished runs."""
