"""Measures derived from an accuracy matrix. Pure.

R[i][j] is the accuracy on task j after task i was learned, rows 0 to T (0: before anything), columns 0 to i (0: the
model's original abilities, which are never learned). After Lopez-Paz and Ranzato 2017, "Gradient Episodic Memory for
Continual Learning" (arXiv:1706.08840), and Chaudhry et al. 2018, "Riemannian Walk for Incremental Learning"
(arXiv:1801.10112):

    ACC        mean over j of R[T][j]                                  j = 1..T
    BWT        mean over j of R[T][j] - R[j][j]                        j = 1..T-1
    forgetting mean over j of max over l = j..T-1 of R[l][j] - R[T][j] j = 1..T-1
    new        mean over j of R[j][j]: the accuracy on each task when it had just been learned

Chaudhry takes the maximum over all l < T; before task j its accuracy is zero, so the result is the same.
"""

from collections.abc import Sequence
from statistics import fmean

Matrix = Sequence[Sequence[float]]


def measures(matrix: Matrix) -> dict[str, float]:
    """`acc`, `bwt`, `forgetting`, `new`, `before`: accuracy on task 0 at the end, `before_lowest`: its lowest after any
    task."""
    last = len(matrix) - 1
    tasks, old = range(1, last + 1), range(1, last)
    return {
        "acc": fmean(matrix[last][j] for j in tasks),
        "bwt": fmean(matrix[last][j] - matrix[j][j] for j in old),
        "forgetting": fmean(max(matrix[i][j] for i in range(j, last)) - matrix[last][j] for j in old),
        "new": fmean(matrix[j][j] for j in tasks),
        "before": matrix[last][0],
        "before_lowest": min(row[0] for row in matrix),
    }
