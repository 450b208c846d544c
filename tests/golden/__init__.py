"""C as it was, made from stored schedules."""
