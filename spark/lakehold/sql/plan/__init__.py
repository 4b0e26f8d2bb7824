"""Plans statements against the definitions: statement -> effects. Pure."""
