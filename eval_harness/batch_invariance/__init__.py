"""Batch invariance: an unchanged row must give the same bits whatever shares its batch (BIEvolve)."""
