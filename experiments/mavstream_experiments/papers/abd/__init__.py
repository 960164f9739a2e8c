"""Chapter 5 of the dissertation: the adaptive broadcast disk (ABD) on two cores, one of them for sources."""

PAPER = "ABD (dissertation, chapter 5)"
