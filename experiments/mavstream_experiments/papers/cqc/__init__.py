"""Al Moakar et al. 2009, and chapter 4 of the dissertation: continuous query classes (CQC)."""

PAPER = "CQC (AQSIOS)"
