"""Where models run: device and threads."""

import importlib
import os
import shutil
from pathlib import Path

from recunlearn.report.doctor.finding import Finding
from recunlearn.report.doctor.packages import install_command


def device_findings() -> list[Finding]:
    """Where models would run and on how many threads; asks torch, and says so where it cannot be imported."""
    try:
        torch = importlib.import_module("torch")
    except Exception as error:
        text = f"torch cannot be imported ({type(error).__name__}: {str(error).splitlines()[0]})"
        return [Finding("device", "device", text, "missing", f"{install_command()} --force-reinstall")]
    mps = getattr(torch.backends, "mps", None)
    return [
        device_finding(
            cuda=[torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())],
            mps=mps is not None and mps.is_available(),
            gpu_on_machine=shutil.which("nvidia-smi") is not None or Path("/dev/nvidia0").exists(),
            torch_version=torch.__version__,
        ),
        threads_finding(torch.get_num_threads(), available_cores()),
    ]


def device_finding(*, cuda: list[str], mps: bool, gpu_on_machine: bool, torch_version: str) -> Finding:
    """Return the device that ``--device auto`` takes, and why a GPU is not used where the machine has one."""
    if cuda:
        return Finding("device", "device", f"cuda ({', '.join(cuda)}); choose with --device cuda|cpu")
    if mps:
        return Finding("device", "device", "cpu (the Apple GPU is not used); choose with --device cpu")
    if gpu_on_machine:
        value = f"cpu: this machine has an NVIDIA GPU, but torch {torch_version} does not see it"
        fix = (
            "Install the CUDA build of torch and a driver that fits it, or choose --device cpu to be explicit"
        )
        return Finding("device", "device", value, "note", fix)
    return Finding("device", "device", "cpu (no GPU found); choose with --device cpu|cuda")


def available_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def threads_finding(threads: int, cores: int) -> Finding:
    """Torch's threads against the cores that this process may use."""
    value = f"{threads} torch threads on {cores} cores; choose with --threads"
    if threads > cores:
        return Finding(
            "threads", "threads", value, "note", f"--threads {cores}: more threads than cores are slower"
        )
    return Finding("threads", "threads", value)
