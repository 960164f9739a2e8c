"""What a plan would cost: by measured figures of the one that runs, and by estimates."""
