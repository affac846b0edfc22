"""What hot code records about itself."""
