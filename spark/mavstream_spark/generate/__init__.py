"""Generation of datasets: smart homes, and the plain readings of the papers."""
