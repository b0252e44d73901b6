"""What a benchmark reports."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Result:
    """Figures by name with their unit in it, and whether the run's own check of its results held."""

    name: str
    figures: dict[str, float]
    ok: bool = True

    def line(self) -> str:
        """One line for people."""
        figures = "  ".join(
            f"{name} {value:,.0f}" if value >= 100 else f"{name} {value:.2f}" for name, value in self.figures.items()
        )
        return f"{self.name:<10} {figures}" + ("" if self.ok else "  WRONG RESULTS")


def percentile(values: list[float], share: float) -> float:
    """The value below which `share` (0 … 1) of `values` lie."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]
