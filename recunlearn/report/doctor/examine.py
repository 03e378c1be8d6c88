"""The whole examination, in the order in which it is shown."""

import sys

from recunlearn.foundation import paths
from recunlearn.report.doctor import folders, machine, packages
from recunlearn.report.doctor.finding import Finding


def examine() -> list[Finding]:
    """Look at everything; never raises for a broken installation, but says what is broken."""
    pins = packages.read_pins(packages.CONSTRAINTS)
    return [
        packages.python_finding(sys.version_info[:2]),
        *packages.package_findings(packages.declared_requirements(), packages.installed_version, pins),
        *machine.device_findings(),
        *folders.folder_findings(paths.home()),
        *folders.data_findings(),
    ]
