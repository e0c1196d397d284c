"""What the tests need beyond Python packages: ``python -m tests.prepare``, called by ``make test``.

Chromium, a Chinese font, a C compiler and nginx come from Debian's packages where this may install
them; elsewhere it says what is missing and how to get it. So do Firefox and WebKitGTK, whose tests
are skipped where they are not to be had. Then the embedded pair's weights are fetched into the
user's cache, once.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from figures.export import browser

NO_BROWSER = """No Chromium, Chrome or Edge found for the browser tests.
Install one (Debian: apt-get install chromium fonts-noto-cjk; macOS: brew install --cask chromium;
Windows has Edge), or name one: CHROMIUM=/path/to/it make test
Without one, `make test-quick` runs the tests that need no browser."""


#: A package, and its command, of the same source as Debian's `chromium`.
HEADLESS = "chromium-headless-shell"


def find_chromium() -> Path | None:
    """The browser that the tests drive: ``CHROMIUM`` if set, else the first known one.

    Raises FileNotFoundError if ``CHROMIUM`` names something that is not there.
    """
    try:
        found = browser.known()
    except browser.BrowserError as error:
        raise FileNotFoundError(str(error)) from None
    return None if found is None else Path(found)


def find_headless() -> Path | None:
    """What most browser tests drive: Debian's Chromium without the windows around its pages, which
    takes a third less of the processor (BENCHMARKS.md); where there is none, the browser itself.

    Raises FileNotFoundError as `find_chromium` does.
    """
    shell = None if os.environ.get("CHROMIUM") else shutil.which(HEADLESS)
    return Path(shell) if shell else find_chromium()


def has_chinese_font() -> bool:
    """Whether fontconfig knows a font with Chinese (other systems than Linux come with one)."""
    if not sys.platform.startswith("linux"):
        return True
    if not shutil.which("fc-list"):
        return False
    fonts = subprocess.run(["fc-list", ":lang=zh"], capture_output=True, text=True, check=False)
    return bool(fonts.stdout.strip())


def missing_packages() -> list[str]:
    """Debian packages for what is not there yet."""
    packages = []
    if find_chromium() is None:
        packages.append("chromium")
    if not has_chinese_font():
        packages += ["fonts-noto-cjk", "fontconfig"]
    if not any(map(shutil.which, ("cc", "gcc", "clang"))):
        packages += ["gcc", "libc6-dev"]
    if not shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin"):
        packages.append("nginx-light")
    return packages


def firefox() -> str | None:
    """Debian's Firefox, or another one on PATH."""
    return shutil.which("firefox-esr") or shutil.which("firefox")


def mini_browser() -> Path | None:
    """WebKitGTK's own small browser, which stands in no folder of PATH."""
    found = sorted(Path("/usr/lib").glob("*/webkit2gtk-4.*/MiniBrowser"))
    return found[-1] if found else None


def lacking(engine: str) -> list[str]:
    """Debian packages that would bring what the tests of "firefox" or "webkit" drive."""
    if engine == "firefox":
        return [] if firefox() else ["firefox-esr"]
    packages = []
    if not shutil.which("WebKitWebDriver") or mini_browser() is None:
        packages.append("webkit2gtk-driver")
    if not shutil.which("Xvfb"):
        packages.append("xvfb")
    return packages


def how_to_get(engine: str, packages: list[str]) -> str:
    """What to do where the tests of "firefox" or "webkit" find no such browser."""
    elsewhere = {
        "firefox": "elsewhere put a Firefox on PATH",
        "webkit": "there is no WebKitGTK but for Linux",
    }
    return (
        f"{engine} is missing: `make test` installs it where it may; by hand "
        f"`apt-get install {' '.join(packages)}` (Debian, Ubuntu); {elsewhere[engine]}"
    )


def install(packages: list[str]) -> None:
    """``apt-get install`` them where that is possible without asking anybody for a password."""
    if not packages or not shutil.which("apt-get"):
        return
    sudo: list[str] = []
    if os.geteuid() != 0:
        sudo = ["sudo", "-n"]
        can_sudo = shutil.which("sudo") and subprocess.run([*sudo, "true"], check=False)
        if not can_sudo or can_sudo.returncode != 0:
            print(f"To install what is missing: sudo apt-get install {' '.join(packages)}")
            return
    apt = [*sudo, "env", "DEBIAN_FRONTEND=noninteractive", "apt-get"]
    print(f"Installing Debian packages: {' '.join(packages)}", flush=True)
    subprocess.run([*apt, "update", "-qq"], check=False)
    subprocess.run(
        [*apt, "install", "--yes", "-qq", "--no-install-recommends", *packages],
        check=False,
        stdin=subprocess.DEVNULL,
    )


def main() -> int:
    """Prepare everything; returns 1, having said what is missing, if something still is."""
    install(missing_packages())
    if find_chromium() is None:
        print(NO_BROWSER, file=sys.stderr)
        return 1
    if not has_chinese_font():
        print("No Chinese font found: screenshots will show boxes.", file=sys.stderr)
    if not os.environ.get("CHROMIUM") and not shutil.which(HEADLESS):
        install([HEADLESS])  # where it is unknown the tests drive the browser itself
    for engine in ("firefox", "webkit"):
        install(lacking(engine))  # each alone: a system that knows one package may not know another
        if packages := lacking(engine):
            print(f"{how_to_get(engine, packages)}. Its tests are skipped.", file=sys.stderr)
    weights = subprocess.run([sys.executable, "-m", "kernels", "weights"], check=False)
    return weights.returncode


if __name__ == "__main__":
    sys.exit(main())
