"""From typed plans to operators, and from plans to equivalent plans."""
