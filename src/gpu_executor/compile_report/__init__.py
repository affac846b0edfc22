"""What AMD's compiler makes of the package's pipelines, without an AMD GPU."""
