"""Values: the state of everything upstream of a source at one moment."""
