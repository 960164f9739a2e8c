"""Building blocks of the views: markup, charts, graphs and the live element that shows them."""
