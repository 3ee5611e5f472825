#: loops_ijk_doc: typical triple loop with docstring
def matmul(A, B):
    """
    Multiply two matrices A (n x k) and B (k x m).

    Parameters
    ----------
    A : list of list of float
        Left-hand matrix.
    B : list of list of float
        Right-hand matrix.

    Returns
    -------
    list of list of float
        The product matrix of shape n x m.
    """
    rows_A = len(A)
    cols_A = len(A[0])
    cols_B = len(B[0])

    result = [[0.0 for _ in range(cols_B)] for _ in range(rows_A)]

    for i in range(rows_A):
        for j in range(cols_B):
            for k in range(cols_A):
                result[i][j] += A[i][k] * B[k][j]

    return result

#: loops_ikj_cached: i-k-j order with cached row references
def matmul(A, B):
    """Multiply A (n×k) by B (k×m) using the cache‑friendly i‑k‑j loop order."""
    n = len(A)
    k = len(A[0])
    m = len(B[0])

    # Allocate the result matrix – each row must be a distinct list
    C = [[0.0] * m for _ in range(n)]

    for i in range(n):
        Ai = A[i]          # local reference to row i of A
        Ci = C[i]          # local reference to row i of C
        for p in range(k):
            aip = Ai[p]
            Bp = B[p]
            for j in range(m):
                Ci[j] += aip * Bp[j]
    return C

#: loops_jik: column first
def matmul(A, B):
    n, k, m = len(A), len(B), len(B[0])
    C = [[0.0] * m for _ in range(n)]
    for j in range(m):
        col = [B[p][j] for p in range(k)]
        for i in range(n):
            row = A[i]
            acc = 0.0
            for p in range(k):
                acc += row[p] * col[p]
            C[i][j] = acc
    return C

#: loops_kij: outer product order
def matmul(A, B):
    # Rank-1 updates: C += A[:,k] * B[k,:]
    n = len(A)
    m = len(B[0])
    C = [[0.0] * m for _ in range(n)]
    for k in range(len(B)):
        bk = B[k]
        for i in range(n):
            a = A[i][k]
            ci = C[i]
            for j in range(m):
                ci[j] += a * bk[j]
    return C

#: loops_kji: outer products, column inside
def matmul(A, B):
    rows = len(A)
    inner = len(B)
    cols = len(B[0])
    out = [[0.0] * cols for _ in range(rows)]
    for k in range(inner):
        for j in range(cols):
            b = B[k][j]
            for i in range(rows):
                out[i][j] += A[i][k] * b
    return out

#: loops_jki: the Fortran order, with a temporary per column
def matmul(A, B):
    n = len(A); K = len(B); m = len(B[0])
    columns = []
    for j in range(m):
        col = [0.0] * n
        for k in range(K):
            bkj = B[k][j]
            for i in range(n):
                col[i] += A[i][k] * bkj
        columns.append(col)
    return [[columns[j][i] for j in range(m)] for i in range(n)]

#: loops_transpose_first: explicit transposition with loops
def matmul(A, B):
    # Step 1: transpose B so that its columns become contiguous rows.
    k = len(B)
    m = len(B[0])
    BT = []
    for j in range(m):
        col = []
        for i in range(k):
            col.append(B[i][j])
        BT.append(col)

    # Step 2: each entry is the dot product of a row of A and a row of BT.
    result = []
    for row in A:
        new_row = []
        for col in BT:
            total = 0
            for x, y in zip(row, col):
                total += x * y
            new_row.append(total)
        result.append(new_row)
    return result

#: loops_skip_zero: skips zero entries
def matmul(A, B):
    n, k, m = len(A), len(A[0]), len(B[0])
    C = [[0.0] * m for _ in range(n)]
    for i in range(n):
        Ai = A[i]
        Ci = C[i]
        for t in range(k):
            a = Ai[t]
            if a == 0:          # nothing to add
                continue
            Bt = B[t]
            for j in range(m):
                Ci[j] += a * Bt[j]
    return C

#: loops_enumerate: enumerate everywhere
def matmul(A, B):
    C = [[0.0] * len(B[0]) for _ in A]
    for i, row in enumerate(A):
        target = C[i]
        for k, a in enumerate(row):
            for j, b in enumerate(B[k]):
                target[j] += a * b
    return C

#: loops_while_all: while loops with counters
def matmul(A, B):
    n = len(A)
    k = len(B)
    m = len(B[0])
    C = []
    i = 0
    while i < n:
        row = [0.0] * m
        p = 0
        while p < k:
            a = A[i][p]
            b = B[p]
            j = 0
            while j < m:
                row[j] += a * b[j]
                j += 1
            p += 1
        C.append(row)
        i += 1
    return C

#: loops_while_down: counts down with while
def matmul(a, b):
    i = len(a)
    m = len(b[0])
    res = [None] * i
    while i:
        i -= 1
        r = a[i]
        out = [0.0] * m
        j = m
        while j:
            j -= 1
            s = 0.0
            t = len(b)
            while t:
                t -= 1
                s += r[t] * b[t][j]
            out[j] = s
        res[i] = out
    return res

#: loops_unroll2: unrolled by two
def matmul(A, B):
    n = len(A)
    k = len(B)
    m = len(B[0])
    k2 = k - (k & 1)
    Bt = [[B[r][c] for r in range(k)] for c in range(m)]
    C = [[0.0] * m for _ in range(n)]
    for i in range(n):
        a = A[i]
        ci = C[i]
        for j in range(m):
            b = Bt[j]
            s0 = 0.0
            s1 = 0.0
            for p in range(0, k2, 2):
                s0 += a[p] * b[p]
                s1 += a[p + 1] * b[p + 1]
            if k & 1:
                s0 += a[k - 1] * b[k - 1]
            ci[j] = s0 + s1
    return C

#: loops_unroll8: unrolled by eight, several accumulators
def matmul(A, B):
    """
    Fast pure-Python matrix multiplication.

    The inner loop is unrolled eight times which reduces the loop overhead
    of the interpreter considerably.
    """
    k = len(B)
    BT = list(map(list, zip(*B)))
    lim = (k // 8) * 8
    out = []
    for row in A:
        res_row = []
        for col in BT:
            acc = 0.0
            p = 0
            while p < lim:
                acc += (row[p] * col[p] +
                        row[p + 1] * col[p + 1] +
                        row[p + 2] * col[p + 2] +
                        row[p + 3] * col[p + 3] +
                        row[p + 4] * col[p + 4] +
                        row[p + 5] * col[p + 5] +
                        row[p + 6] * col[p + 6] +
                        row[p + 7] * col[p + 7])
                p += 8
            while p < k:
                acc += row[p] * col[p]
                p += 1
            res_row.append(acc)
        out.append(res_row)
    return out

#: loops_unroll4_columns: unrolls four output columns at a time
def matmul(A, B):
    n, kk, m = len(A), len(B), len(B[0])
    m4 = m // 4 * 4
    C = [[0.0] * m for _ in range(n)]
    for i in range(n):
        Ai, Ci = A[i], C[i]
        for j in range(0, m4, 4):
            c0 = c1 = c2 = c3 = 0.0
            for k in range(kk):
                a = Ai[k]
                b = B[k]
                c0 += a * b[j]
                c1 += a * b[j + 1]
                c2 += a * b[j + 2]
                c3 += a * b[j + 3]
            Ci[j], Ci[j + 1], Ci[j + 2], Ci[j + 3] = c0, c1, c2, c3
        for j in range(m4, m):
            c = 0.0
            for k in range(kk):
                c += Ai[k] * B[k][j]
            Ci[j] = c
    return C

#: loops_two_rows: two rows of A at once
def matmul(A, B):
    n = len(A)
    Bt = list(zip(*B))
    C = []
    i = 0
    while i + 1 < n:
        r0, r1 = A[i], A[i + 1]
        o0, o1 = [], []
        for col in Bt:
            s0 = s1 = 0.0
            for x, y, b in zip(r0, r1, col):
                s0 += x * b
                s1 += y * b
            o0.append(s0)
            o1.append(s1)
        C.append(o0)
        C.append(o1)
        i += 2
    if i < n:
        r0 = A[i]
        last = []
        for col in Bt:
            s = 0.0
            for x, b in zip(r0, col):
                s += x * b
            last.append(s)
        C.append(last)
    return C

#: loops_reversed: runs the loops backwards
def matmul(A, B):
    n, k, m = len(A), len(B), len(B[0])
    C = [[0.0] * m for _ in range(n)]
    for i in reversed(range(n)):
        for t in reversed(range(k)):
            a = A[i][t]
            for j in range(m - 1, -1, -1):
                C[i][j] += a * B[t][j]
    return C

#: loops_divmod: a single loop with divmod
def matmul(A, B):
    n, k, m = len(A), len(B), len(B[0])
    C = [[0.0] * m for _ in range(n)]
    for idx in range(n * m):
        i, j = divmod(idx, m)
        s = 0.0
        for t in range(k):
            s += A[i][t] * B[t][j]
        C[i][j] = s
    return C

#: loops_local_alias: local aliasing of builtins
def matmul(A, B):
    _range = range
    _len = len
    n = _len(A)
    k = _len(B)
    m = _len(B[0])
    # Bind methods / builtins to local names to avoid global look-ups
    C = []
    C_append = C.append
    for i in _range(n):
        row_a = A[i]
        row_c = [0.0] * m
        for p in _range(k):
            x = row_a[p]
            row_b = B[p]
            for j in _range(m):
                row_c[j] += x * row_b[j]
        C_append(row_c)
    return C

#: loops_tabs: tabs as indentation
def matmul(A, B):
	# rows and columns
	n = len(A)
	k = len(A[0])
	m = len(B[0])
	C = []
	for i in range(n):
		row = []
		for j in range(m):
			s = 0.0
			for p in range(k):
				s += A[i][p] * B[p][j]
			row.append(s)
		C.append(row)
	return C

#: loops_semicolons: semicolons and short names
def matmul(a,b):
  n=len(a);p=len(b);q=len(b[0]);c=[]
  for i in range(n):
    r=a[i];w=[0.]*q;c+=[w]
    for k in range(p):
      x=r[k];y=b[k]
      for j in range(q):w[j]+=x*y[j]
  return c

#: loops_math_heavy_comment: a very long explanation
# -----------------------------------------------------------------------------
#  Matrix multiplication
#
#  The product C = A · B of an (n × k) matrix A and a (k × m) matrix B is the
#  (n × m) matrix whose entries are
#
#        C[i][j] = Σₖ A[i][k] · B[k][j]
#
#  A naive implementation iterates i → j → k, which means that the innermost
#  loop walks down a *column* of B.  In Python a matrix is a list of row lists,
#  so a column access costs two index operations.  Re‑ordering the loops to
#  i → k → j lets us walk along *rows* of B and C only.  The arithmetic is the
#  same; only the order of the additions is changed.
#
#  Complexity:  O(n·k·m) multiplications, O(n·m) extra memory.
# -----------------------------------------------------------------------------
def matmul(A, B):
    """Return the matrix product A·B."""
    m = len(B[0])
    C = []
    for row in A:                     # i
        acc = [0.0] * m
        for a, b_row in zip(row, B):  # k
            for j in range(m):        # j
                acc[j] += a * b_row[j]
        C.append(acc)
    return C

#: loops_zip_index: index list reused
def matmul(A, B):
    m = len(B[0])
    cols = range(m)
    C = []
    for row in A:
        line = [0.0] * m
        for a, b in zip(row, B):
            if a:
                for j in cols:
                    line[j] += a * b[j]
        C.append(line)
    return C

#: loops_for_else: for/else and continue
def matmul(A, B):
    C = []
    width = len(B[0])
    for row in A:
        for x in row:
            if x != 0.0:
                break
        else:
            # the whole row is zero, so is the row of the product
            C.append([0.0] * width)
            continue
        out = []
        for j in range(width):
            s = 0.0
            for k, x in enumerate(row):
                s += x * B[k][j]
            out.append(s)
        C.append(out)
    return C

#: loops_poor_retranspose: transposes again for each row (slow)
def matmul(A, B):
    result = []
    for row in A:
        transposed = []
        for j in range(len(B[0])):
            transposed.append([B[i][j] for i in range(len(B))])
        new = []
        for column in transposed:
            value = 0
            for i in range(len(row)):
                value = value + row[i] * column[i]
            new.append(value)
        result.append(new)
    return result

#: loops_poor_concat: builds rows by list concatenation (slow)
def matmul(A, B):
    C = []
    for i in range(len(A)):
        row = []
        for j in range(len(B[0])):
            products = []
            for k in range(len(B)):
                products = products + [A[i][k] * B[k][j]]
            row = row + [sum(products)]
        C = C + [row]
    return C

#: loops_poor_index_heavy: re-evaluates len everywhere, copies rows
def matmul(A, B):
    result = []
    for i in range(0, len(A), 1):
        result.append([])
        for j in range(0, len(B[0]), 1):
            result[i].append(0.0)
            for k in range(0, len(list(A[i])), 1):
                a_row = list(A[i])
                result[i][j] = result[i][j] + float(a_row[k]) * float(B[k][j])
    return result

#: loops_swap_temp: walrus in the loops
def matmul(A, B):
    if (k := len(A[0])) != len(B):
        raise ValueError("shapes do not match")
    C = []
    for row in A:
        C.append(new := [0.0] * len(B[0]))
        for t in range(k):
            if (a := row[t]) == 0.0:
                continue
            for j, b in enumerate(B[t]):
                new[j] += a * b
    return C

#: loops_del: deletes the temporaries
def matmul(A, B):
    rows, inner, cols = len(A), len(B), len(B[0])
    Bt = [[0.0] * inner for _ in range(cols)]
    for i in range(inner):
        for j in range(cols):
            Bt[j][i] = B[i][j]
    C = [[0.0] * cols for _ in range(rows)]
    for i in range(rows):
        for j in range(cols):
            s = 0.0
            for x, y in zip(A[i], Bt[j]):
                s += x * y
            C[i][j] = s
    del Bt, s, x, y
    return C

#: loops_kahan: Kahan compensated sum
def matmul(A, B):
    """Matrix product with Kahan (compensated) summation for accuracy."""
    cols = list(zip(*B))
    C = []
    for row in A:
        out = []
        for col in cols:
            s = 0.0
            c = 0.0
            for a, b in zip(row, col):
                y = a * b - c
                t = s + y
                c = (t - s) - y
                s = t
            out.append(s)
        C.append(out)
    return C
