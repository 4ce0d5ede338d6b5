"""How the tests of what is installed run other programs."""

import subprocess


def run(*command, environment, status=0, text=None, cwd=None, errors=subprocess.STDOUT):
    """What a program prints, its errors among it unless they go elsewhere. It has to succeed, or with another `status`
    to fail."""
    done = subprocess.run(list(map(str, command)), input=text, stdout=subprocess.PIPE, stderr=errors, text=True,
                          env=environment, timeout=1200, cwd=cwd)
    if (done.returncode == 0) != (status == 0):
        raise AssertionError(f"{' '.join(map(str, command))} ended with {done.returncode}:\n"
                             f"{done.stdout}{done.stderr or ''}")
    return done.stdout
