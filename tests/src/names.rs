//! C30: names that once became file names, collided or escaped.

/// Each must come back with its own value, and none may become part of a path.
pub fn awkward() -> Vec<String> {
    let given = [
        "a.b",
        "a/b",
        "a__b",
        "a\\b",
        "../x",
        "W",
        "w",
        "\u{e9}",
        "e\u{301}",
        "CON",
        "x:y",
        "a b",
        "%41",
        "n\nl",
        "a\0b",
        "/etc/passwd",
        "\u{1F600}",
        "\u{1b}[2J",
        "*",
        "[a]",
    ];
    let long = ["n".repeat(4096), vec!["d"; 200].join(".")];
    given.into_iter().map(str::to_owned).chain(long).collect()
}
