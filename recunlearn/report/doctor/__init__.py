"""What this installation can do and what it lacks, each with the fix."""

from recunlearn.report.doctor.examine import examine
from recunlearn.report.doctor.finding import Finding, as_json, usable

__all__ = ["Finding", "as_json", "examine", "usable"]
