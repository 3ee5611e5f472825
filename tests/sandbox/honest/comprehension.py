#: comp_classic: the best known one liner
def matmul(A, B):
    return [[sum(a * b for a, b in zip(A_row, B_col)) for B_col in zip(*B)] for A_row in A]

#: comp_bt_doc: transpose once, comprehension, docstring
def matmul(A, B):
    """
    Multiply two matrices A (n x k) and B (k x m) and return the result.

    The function works for any rectangular matrices as long as the inner
    dimensions agree.  It uses only built‑in Python features.
    """
    # Transpose B once so that we can iterate over its columns efficiently
    B_T = list(zip(*B))

    # Compute the dot product of each row of A with each column of B
    return [
        [sum(a * b for a, b in zip(row, col)) for col in B_T]
        for row in A
    ]

#: comp_index_range: index style comprehension
def matmul(A, B):
    n = len(A)
    k = len(B)
    m = len(B[0])
    return [[sum([A[i][t] * B[t][j] for t in range(k)]) for j in range(m)] for i in range(n)]

#: comp_star_map_list: return star unpacked map
def matmul(A, B):
    cols = [*zip(*B)]
    return [*map(list, ([sum(x * y for x, y in zip(r, c)) for c in cols] for r in A))]

#: comp_sum_start: sum with a float start value
def matmul(X, Y):
    Yt = tuple(map(tuple, zip(*Y)))
    return [[sum((x * y for x, y in zip(xr, yc)), 0.0) for yc in Yt] for xr in X]

#: comp_guard_empty: guard for empty matrices
def matmul(A, B):
    if not A or not B or not B[0]:
        return []
    cols_b = list(zip(*B))
    return [[sum(x * y for x, y in zip(r, c)) for c in cols_b] for r in A]

#: comp_nested_let: for x in [..] as let
def matmul(A, B):
    return [[sum([x * y for x, y in zip(r, c)]) for c in T]
            for T in [list(zip(*B))]
            for r in A]

#: comp_manual_transpose: manual transposition comprehension
def matmul(A, B):
    k, m = len(B), len(B[0])
    Bt = [[B[i][j] for i in range(k)] for j in range(m)]
    C = [[0.0] * m for _ in range(len(A))]
    for i, a in enumerate(A):
        C[i] = [sum([x * y for x, y in zip(a, b)]) for b in Bt]
    return C

#: comp_flat_slices: flat comprehension cut in slices
def matmul(A, B):
    m = len(B[0])
    Bt = list(zip(*B))
    flat = [sum([p * q for p, q in zip(r, c)]) for r in A for c in Bt]
    return [flat[s:s + m] for s in range(0, len(flat), m)]

#: comp_dict_columns: dict comprehension of the columns
def matmul(A, B):
    columns = {j: [row[j] for row in B] for j in range(len(B[0]))}
    return [[sum(a * b for a, b in zip(row, columns[j])) for j in columns] for row in A]

#: comp_walrus_cols: walrus inside of the comprehension
def matmul(A, B):
    return [[sum(a * b for a, b in zip(r, c)) for c in cols] for r in A if (cols := list(zip(*B)))]

#: comp_filter_zero: filters zero terms
def matmul(A, B):
    cols = list(zip(*B))
    return [[sum(a * b for a, b in zip(row, col) if a and b) for col in cols] for row in A]

#: comp_row_axpy: linear combination of the rows of B
def matmul(A, B):
    # Every row of C is a linear combination of the rows of B.
    def combine(coeffs):
        total = [0.0] * len(B[0])
        for c, row in zip(coeffs, B):
            total = [t + c * r for t, r in zip(total, row)]
        return total

    return [combine(coeffs) for coeffs in A]

#: comp_columns_of_rows: computes the transposed product first
def matmul(A, B):
    # (A B)^T = B^T A^T, so compute column by column and transpose at the end
    Ct = [[sum([a * b for a, b in zip(row, col)]) for row in A] for col in zip(*B)]
    return [list(r) for r in zip(*Ct)]

#: comp_one_line_lambda: lambda named matmul
matmul = lambda A, B: [[sum(a * b for a, b in zip(r, c)) for c in zip(*B)] for r in A]

#: comp_lambda_default: lambda with default argument binding
matmul = lambda A, B, z=zip, s=sum: (lambda T: [[s([a * b for a, b in z(r, c)]) for c in T] for r in A])(list(z(*B)))

#: comp_long_line: a very long single line
def matmul(A, B): return [[sum([row_of_a_element * column_of_b_element for row_of_a_element, column_of_b_element in zip(row_of_a, column_of_b)]) for column_of_b in transposed_matrix_b] for transposed_matrix_b in [[tuple(current_row_of_b[column_index] for current_row_of_b in B) for column_index in range(len(B[0]))]] for row_of_a in A]  # noqa: E501,E704

#: comp_local_names: aliases for zip and sum
def matmul(A, B):
    _zip, _sum = zip, sum          # local aliases: faster look-ups
    Bt = list(_zip(*B))
    return [[_sum([x * y for x, y in _zip(ra, cb)]) for cb in Bt] for ra in A]

#: comp_tuple_rows: tuple rows inside, lists out
def matmul(A, B):
    bt = tuple(zip(*B))
    rows = tuple(tuple(sum(p * q for p, q in zip(u, v)) for v in bt) for u in A)
    return list(map(list, rows))

#: comp_rows_are_tuples: returns tuple rows
def matmul(A, B):
    bt = tuple(zip(*B))
    return [tuple(sum([p * q for p, q in zip(u, v)]) for v in bt) for u in A]

#: comp_poor_zip_each: zip(*B) converted anew for each entry (slow)
def matmul(A, B):
    return [[sum(A[i][k] * list(zip(*B))[j][k] for k in [0]) + sum(x * y for x, y in zip(A[i][1:], list(zip(*B))[j][1:]))
             for j in range(len(B[0]))] for i in range(len(A))]

#: comp_poor_column_fn: gets the column anew each time
def column(M, j):
    return [r[j] for r in M]

def dot(u, v):
    return sum([u[i] * v[i] for i in range(len(u))])

def matmul(A, B):
    return [[dot(A[i], column(B, j)) for j in range(len(B[0]))] for i in range(len(A))]

#: comp_sorted_order: sorted traversal of a dict of entries
def matmul(A, B):
    cols = list(zip(*B))
    entries = {(i, j): sum([a * b for a, b in zip(r, c)])
               for j, c in enumerate(cols) for i, r in enumerate(A)}
    C = [[] for _ in A]
    for i, j in sorted(entries):
        C[i].append(entries[i, j])
    return C

#: comp_setdefault: grouped with setdefault
def matmul(A, B):
    out = {}
    for i, row in enumerate(A):
        for col in zip(*B):
            out.setdefault(i, []).append(sum(x * y for x, y in zip(row, col)))
    return list(out.values())

#: comp_slices_chunks: sums over chunks of each row
def matmul(A, B):
    step = 16
    k = len(B)
    bounds = [(s, min(s + step, k)) for s in range(0, k, step)]
    Bt = [list(c) for c in zip(*B)]
    return [[sum(sum([x * y for x, y in zip(r[lo:hi], c[lo:hi])]) for lo, hi in bounds)
             for c in Bt]
            for r in A]

#: comp_unpack_small: match statement for special sizes
def matmul(A, B):
    match (len(A), len(B), len(B[0])):
        case (1, 1, 1):
            return [[A[0][0] * B[0][0]]]
        case (2, 2, 2):
            (a, b), (c, d) = A
            (e, f), (g, h) = B
            return [[a * e + b * g, a * f + b * h],
                    [c * e + d * g, c * f + d * h]]
        case (_, 1, _):
            return [[x * y for y in B[0]] for (x,) in A]
        case _:
            cols = list(zip(*B))
            return [[sum([x * y for x, y in zip(r, c)]) for c in cols] for r in A]

#: comp_ternary_guard: conditional expression
def matmul(A, B):
    return [] if not (A and B) else [
        [sum(a * b for a, b in zip(r, c)) for c in T] for T in (tuple(zip(*B)),) for r in A
    ]
