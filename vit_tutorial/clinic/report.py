"""What ``diagnose`` returns: findings, and what was not tested, as a table in a notebook and as text (chapter 12)."""

from collections.abc import Iterable
from dataclasses import dataclass

from vit_tutorial.plots.tables import table


@dataclass(frozen=True)
class Finding:
    """A bug that a model has.

    Attributes:
        bug: its name; a key of ``vit_tutorial.archs.patients.PATIENTS`` if it is one of those.
        evidence: what was seen, with numbers.
        remedy: what to change.
        test: the function of ``vit_tutorial.clinic`` that saw it, behind the name of its file.
    """

    bug: str
    evidence: str
    remedy: str
    test: str = ""


class Diagnosis(list[Finding]):
    """A list of findings that also knows which tests ran, and which said nothing.

    A notebook shows it as tables, and ``print`` as text.

    Attributes:
        not_run: bug → why the test for it does not apply to this model, or could not tell.
        passed: the bugs that were looked for and not found.
        advice: what to pass so that more can be tested; empty if that would not help.
    """

    def __init__(
        self,
        findings: Iterable[Finding] = (),
        not_run: dict[str, str] | None = None,
        passed: Iterable[str] = (),
        advice: str = "",
    ):
        super().__init__(findings)
        self.not_run = not_run or {}
        self.passed = list(passed)
        self.advice = advice

    @property
    def summary(self) -> str:
        """How many bugs were found, and looked for, in one line."""
        found = f"{len(self)} bug{'s' * (len(self) != 1)} found" if self else "no bug found"
        looked = f", {len(self.passed)} others looked for and not found" if self.passed else ""
        return found + looked + (f", {len(self.not_run)} not tested" if self.not_run else "")

    def __str__(self) -> str:
        lines = [f"{self.summary}."]
        for finding in self:
            lines += ["", finding.bug, f"  evidence: {finding.evidence}", f"  repair:   {finding.remedy}"]
            lines += [f"  test:     {finding.test}"] * bool(finding.test)
        if self.passed:
            lines += ["", f"looked for, not found: {', '.join(self.passed)}"]
        if self.not_run:
            lines += ["", "not tested:", *(f"  {', '.join(bugs)}: {why}" for why, bugs in self._by_reason().items())]
        return "\n".join([*lines, *(["", self.advice] * bool(self.advice))])

    def _repr_html_(self) -> str:
        columns = ("bug", "evidence", "repair", "test")
        rows = [(f.bug, f.evidence, f.remedy, f.test) for f in self] or [("none", "", "", "")]
        tables = [table(f"{self.summary}.", dict(zip(columns, zip(*rows, strict=True), strict=True)))]
        if self.not_run:
            caption = f"Not tested. {self.advice}".strip()
            reasons = self._by_reason()
            bugs = [", ".join(each) for each in reasons.values()]
            tables.append(table(caption, {"bug": bugs, "why": list(reasons)}))
        return "".join(each._repr_html_() for each in tables)

    def _by_reason(self) -> dict[str, list[str]]:
        reasons: dict[str, list[str]] = {}
        for bug, why in self.not_run.items():
            reasons.setdefault(why, []).append(bug)
        return reasons
