#: naive
def matmul(A, B):
    n=len(A);k=len(B);m=len(B[0])
    C=[[0.0]*m for _ in range(n)]
    for i in range(n):
        for j in range(m):
            s=0.0
            for t in range(k):
                s+=A[i][t]*B[t][j]
            C[i][j]=s
    return C

#: zip_gen
def matmul(A, B):
    z, s = zip, sum
    Bt = list(z(*B))
    return [[s(a*b for a, b in z(row, col)) for col in Bt] for row in A]

#: zip_list
def matmul(A, B):
    Bt = list(zip(*B))
    return [[sum([a*b for a, b in zip(r, c)]) for c in Bt] for r in A]

#: typed
def matmul(A: list[list[float]], B: list[list[float]]) -> list[list[float]]:
    Bt: list = list(zip(*B))
    return [[sum(a*b for a, b in zip(r, c)) for c in Bt] for r in A]

#: typed_List
def matmul(A: 'List[List[float]]', B) -> 'List[List[float]]':
    Bt = list(zip(*B))
    return [[sum(a*b for a, b in zip(r, c)) for c in Bt] for r in A]

#: assert
def matmul(A, B):
    assert len(A[0]) == len(B), 'shape'
    Bt = tuple(zip(*B))
    return [[sum(map(lambda x, y: x*y, r, c)) for c in Bt] for r in A]

#: axpy
def matmul(A, B):
    out = []
    for r in A:
        acc = [0.0]*len(B[0])
        for a, br in zip(r, B):
            acc = [x + a*y for x, y in zip(acc, br)]
        out.append(acc)
    return out

#: block
def matmul(A, B):
    n=len(A);k=len(B);m=len(B[0]);bs=16
    C=[[0.0]*m for _ in range(n)]
    for ii in range(0,n,bs):
        for kk in range(0,k,bs):
            for jj in range(0,m,bs):
                for i in range(ii,min(ii+bs,n)):
                    Ai=A[i];Ci=C[i]
                    for t in range(kk,min(kk+bs,k)):
                        a=Ai[t];Bt=B[t]
                        for j in range(jj,min(jj+bs,m)):
                            Ci[j]+=a*Bt[j]
    return C

#: unroll
def matmul(A, B):
    Bt = list(zip(*B)); k = len(B); r4 = k - k % 4
    C = []
    for a in A:
        row = []
        for b in Bt:
            s = 0.0
            for i in range(0, r4, 4):
                s += a[i]*b[i] + a[i+1]*b[i+1] + a[i+2]*b[i+2] + a[i+3]*b[i+3]
            for i in range(r4, k):
                s += a[i]*b[i]
            row.append(s)
        C.append(row)
    return C

#: lambda
def matmul(A, B):
    dot = lambda u, v: sum(x*y for x, y in zip(u, v))
    Bt = list(zip(*B))
    return [[dot(r, c) for c in Bt] for r in A]

#: map
def matmul(A, B):
    Bt = list(zip(*B))
    return list(map(lambda r: list(map(lambda c: sum(map(lambda p: p[0]*p[1], zip(r, c))), Bt)), A))

#: strassen
def matmul(A, B):
    def add(X, Y): return [[a+b for a, b in zip(r, s)] for r, s in zip(X, Y)]
    def sub(X, Y): return [[a-b for a, b in zip(r, s)] for r, s in zip(X, Y)]
    def base(X, Y):
        T = list(zip(*Y)); return [[sum([a*b for a, b in zip(r, c)]) for c in T] for r in X]
    def st(X, Y, n):
        if n <= 64: return base(X, Y)
        h = n // 2
        a=[r[:h] for r in X[:h]];b=[r[h:] for r in X[:h]];c=[r[:h] for r in X[h:]];d=[r[h:] for r in X[h:]]
        e=[r[:h] for r in Y[:h]];f=[r[h:] for r in Y[:h]];g=[r[:h] for r in Y[h:]];k=[r[h:] for r in Y[h:]]
        p1=st(a,sub(f,k),h);p2=st(add(a,b),k,h);p3=st(add(c,d),e,h);p4=st(d,sub(g,e),h);p5=st(add(a,d),add(e,k),h);p6=st(sub(b,d),add(g,k),h);p7=st(sub(a,c),add(e,f),h)
        q=add(sub(add(p5,p4),p2),p6);r=add(p1,p2);s=add(p3,p4);t=sub(sub(add(p1,p5),p3),p7)
        return [x+y for x,y in zip(q,r)]+[x+y for x,y in zip(s,t)]
    n=len(A);k=len(B);m=len(B[0]);N=1
    while N<max(n,k,m): N*=2
    X=[r+[0.0]*(N-k) for r in A]+[[0.0]*N for _ in range(N-n)]
    Y=[r+[0.0]*(N-m) for r in B]+[[0.0]*N for _ in range(N-k)]
    return [r[:m] for r in st(X,Y,N)[:n]]

#: winograd
def matmul(A, B):
    n=len(A);k=len(B);m=len(B[0]);h=k//2
    Bt=list(zip(*B))
    rf=[sum([r[2*i]*r[2*i+1] for i in range(h)]) for r in A]
    cf=[sum([c[2*i]*c[2*i+1] for i in range(h)]) for c in Bt]
    C=[]
    for i in range(n):
        a=A[i];row=[]
        for j in range(m):
            b=Bt[j]
            s=-rf[i]-cf[j]
            for t in range(h):
                s+=(a[2*t]+b[2*t+1])*(a[2*t+1]+b[2*t])
            if k%2: s+=a[k-1]*b[k-1]
            row.append(s)
        C.append(row)
    return C

#: try_except
def matmul(A, B):
    try:
        m = len(B[0])
    except IndexError:
        return []
    Bt = list(zip(*B))
    return [[sum([a*b for a, b in zip(r, c)]) for c in Bt] for r in A]

#: generator_fn
def matmul(A, B):
    Bt = list(zip(*B))
    def rows():
        for r in A:
            yield [sum(a*b for a, b in zip(r, c)) for c in Bt]
    return list(rows())

#: float_mul
def matmul(A, B):
    mul = float.__mul__
    Bt = list(zip(*B))
    return [[sum(map(mul, r, c)) for c in Bt] for r in A]

#: op_mul
def matmul(A, B):
    from operator import mul
    Bt = list(zip(*B))
    return [[sum(map(mul, r, c)) for c in Bt] for r in A]

#: fsum
def matmul(A, B):
    from math import fsum
    Bt = list(zip(*B))
    return [[fsum([a*b for a, b in zip(r, c)]) for c in Bt] for r in A]

#: itertools
def matmul(A, B):
    from itertools import starmap
    from operator import mul
    Bt = list(zip(*B))
    return [[sum(starmap(mul, zip(r, c))) for c in Bt] for r in A]

#: while
def matmul(A, B):
    n=len(A);k=len(B);m=len(B[0]);C=[];i=0
    while i<n:
        row=[];j=0
        while j<m:
            s=0.0;t=0
            while t<k:
                s=s+A[i][t]*B[t][j];t=t+1
            row.append(s);j+=1
        C.append(row);i+=1
    return C

#: slices
def matmul(A, B):
    m=len(B[0]);C=[[0.0]*m for _ in A]
    for i, r in enumerate(A):
        acc=C[i]
        for t in range(0, len(B), 2):
            if t+1 < len(B):
                a, b = r[t:t+2]
                acc[:] = [x+a*y+b*z for x, y, z in zip(acc, B[t], B[t+1])]
            else:
                a = r[t]; acc[:] = [x+a*y for x, y in zip(acc, B[t])]
    return C

#: type_alias_import
from typing import List

def matmul(A: List[List[float]], B: List[List[float]]) -> List[List[float]]:
    Bt = list(zip(*B))
    return [[sum(a*b for a, b in zip(r, c)) for c in Bt] for r in A]

#: int_zero
def matmul(A, B):
    C=[[0]*len(B[0]) for _ in range(len(A))]
    for i in range(len(A)):
        for j in range(len(B[0])):
            for k in range(len(B)):
                C[i][j]+=A[i][k]*B[k][j]
    return C

#: reduce
def matmul(A, B):
    from functools import reduce
    Bt = list(zip(*B))
    return [[reduce(lambda s, p: s + p[0]*p[1], zip(r, c), 0.0) for c in Bt] for r in A]

#: append_local
def matmul(A, B):
    Bt = list(zip(*B)); C = []; ap = C.append
    for r in A:
        ap([sum([a*b for a, b in zip(r, c)]) for c in Bt])
    return C

#: print_dbg
def matmul(A, B):
    Bt = list(zip(*B))
    # print('shapes', len(A), len(B))
    return [[sum([a*b for a, b in zip(r, c)]) for c in Bt] for r in A]

# Example usage:
# print(matmul([[1]], [[2]]))
