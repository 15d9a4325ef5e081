"""A second reader of Everstep repositories, from format-spec/ alone: lists and loads a local directory."""
