"""From a placed candidate to an answer: the plan, its certificate, warnings, or why none fits."""
