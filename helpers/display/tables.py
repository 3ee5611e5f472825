"""Plain tables, for a terminal and for a notebook alike."""


def text_table(rows, header=None):
    """Aligned columns: the first to the left, numbers to the right.

    rows: sequences, of one length, of str, numbers, or None for a number that is missing. header: the column names.
    """
    cells = [[_text(cell) for cell in row] for row in ([header] if header else []) + list(rows)]
    widths = [max(map(len, column)) for column in zip(*cells)]
    numeric = [all(isinstance(cell, (int, float, type(None))) for cell in column) for column in zip(*rows)]
    numeric = numeric or [False] * len(widths)  # a header without rows
    lines = [
        "  ".join(cell.rjust(w) if right else cell.ljust(w) for cell, w, right in zip(row, widths, numeric)).rstrip()
        for row in cells
    ]
    if header:
        lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(lines)


def _text(cell):
    if cell is None:
        return "–"
    return f"{cell:.3g}" if isinstance(cell, float) else str(cell)
