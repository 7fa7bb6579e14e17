"""Many runs from one recipe."""
