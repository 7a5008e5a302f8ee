"""What users describe a dataflow with: environment, functions, windows, triggers, and what they get back."""
