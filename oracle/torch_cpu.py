"""Installs torch without its GPU libraries, which are larger than everything else here.

    python torch_cpu.py

The x86-64 Linux wheel is linked against a dozen GPU libraries that plain CPU work never
calls. It is installed without dependencies, and an empty library stands in for each
missing one: it has the right name and defines every symbol, with its version, that the
wheel leaves open.
A call into one of them would crash, and none happens while no GPU is used.
"""

import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

TORCH = "torch==2.15.0"
# What `import torch` needs on a CPU. The CUDA runtime is real: torch calls it to count devices.
NEEDED = [
    "filelock==4.3.1",
    "fsspec==2026.9.0",
    "jinja2==3.1.6",
    "networkx==3.6.1",
    "nvidia-cuda-runtime==13.2.75",
    "setuptools==84.2.1",
    "sympy==1.14.0",
    "typing-extensions==4.16.0",
]


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def symbols(library, kind):
    """Names and versions (empty where there is none) of the dynamic symbols of `library`."""
    lines = output("nm", "--dynamic", f"--{kind}-only", str(library)).splitlines()
    fields = [line.split()[-1].partition("@") for line in lines if line.strip()]
    return {(name, version.lstrip("@")) for name, _, version in fields}


def needed_libraries(library):
    lines = output("readelf", "--dynamic", str(library)).splitlines()
    return {line.split("[")[1].rstrip("]") for line in lines if "(NEEDED)" in line}


def present(name, folders):
    """Whether the dynamic linker finds `name` beside torch or in the system."""
    if any((folder / name).exists() for folder in folders):
        return True
    probe = "import ctypes, sys; ctypes.CDLL(sys.argv[1])"
    return subprocess.run([sys.executable, "-c", probe, name], capture_output=True).returncode == 0


def make_stub(name, open_symbols, folder):
    with tempfile.TemporaryDirectory() as scratch:
        source, script = Path(scratch) / "stub.c", Path(scratch) / "stub.map"
        names = sorted({symbol for symbol, _ in open_symbols})
        source.write_text("".join(f"void {symbol}(void) {{}}\n" for symbol in names))
        versions = sorted({version for _, version in open_symbols if version})
        nodes = {version: [symbol for symbol, of in open_symbols if of == version] for version in versions}
        script.write_text("".join(f"{version} {{ {'; '.join(sorted(of))}; }};\n" for version, of in nodes.items()))
        flags = ["-shared", "-fPIC", "-w", "-fno-builtin", f"-Wl,-soname,{name}", f"-Wl,--version-script={script}"]
        subprocess.run(["cc", *flags, str(source), "-o", str(folder / name)], check=True)


def main():
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, *NEEDED], check=True)
    subprocess.run([*pip, "--no-deps", TORCH], check=True)
    packages = Path(sysconfig.get_paths()["platlib"])
    torch_lib = packages / "torch" / "lib"
    folders = [torch_lib, *packages.glob("nvidia/*/lib")]
    wheel = [path for path in torch_lib.glob("*.so*") if path.stat().st_size]
    names = set().union(*(needed_libraries(path) for path in wheel))
    missing = sorted(name for name in names if not present(name, folders))
    defined = set().union(*(symbols(path, "defined") for folder in folders for path in folder.glob("*.so*")))
    defined_names = {symbol for symbol, _ in defined}
    open_symbols = set().union(*(symbols(path, "undefined") for path in wheel))
    gpu = {(symbol, version) for symbol, version in open_symbols
           if symbol not in defined_names and symbol.startswith(("cu", "nv", "nccl"))}
    for name in missing:
        make_stub(name, gpu, torch_lib)
    check = "import torch; assert (torch.ones(2, 3) @ torch.ones(3, 2)).sum() == 12; print('torch', torch.__version__)"
    subprocess.run([sys.executable, "-c", check], check=True)


if __name__ == "__main__":
    main()
