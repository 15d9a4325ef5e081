"""A second reader of Everstep repositories, written from format-spec/ alone, on a local directory."""
