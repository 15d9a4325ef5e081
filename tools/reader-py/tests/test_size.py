"""The size of the reader, which is to stay small enough to be read at once, and what it leans on."""

import ast
import io
import tokenize
import unittest
from pathlib import Path

READER = sorted((Path(__file__).parents[1] / "everstep_reader").glob("*.py"))
ALL = [*READER, *Path(__file__).parents[1].glob("everstep_checker/*.py"), *Path(__file__).parents[1].glob("*.py")]
NO_CODE = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)


def documentation(tree):
    """The lines of all docstrings."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(node):
            yield from range(node.body[0].lineno, node.body[0].end_lineno + 1)


def code_lines(text):
    """Those on which something stands that is neither a comment nor a docstring."""
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    lines = {line for one in tokens if one.type not in NO_CODE for line in range(one.start[0], one.end[0] + 1)}
    return len(lines - set(documentation(ast.parse(text))))


class Size(unittest.TestCase):
    def test_lines_are_counted_without_comments_docstrings_and_blank_ones(self):
        text = '"""Two\nlines."""\n\n# a comment\ndef f():\n    """What."""\n    return """a\n\nb"""  # why\n'
        self.assertEqual(code_lines(text), 4)

    def test_the_reader_has_at_most_500_lines_of_code(self):
        self.assertGreater(len(READER), 5)
        self.assertLessEqual(sum(code_lines(path.read_text()) for path in READER), 500)

    def test_no_line_has_more_than_110_characters(self):
        for path in ALL:
            longest = max(map(len, path.read_text().splitlines()))
            self.assertLessEqual(longest, 110, path)

    def test_the_reader_imports_neither_checker_nor_values(self):
        for path in READER:
            for node in ast.walk(ast.parse(path.read_text())):
                names = [one.name for one in node.names] if isinstance(node, ast.Import) else []
                names += [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
                self.assertFalse([name for name in names if name.startswith("everstep")], path)


if __name__ == "__main__":
    unittest.main()
