"""Launchers of MPI that the tests of ranks start `gannet` with: the paths of `mpirun` in
GANNET_TEST_MPIRUN, with `:` between them."""

import os
import signal
import subprocess
import time

# Time in which a command over ranks ends.
LIMIT = 120


def paths():
    return [path for path in os.environ.get("GANNET_TEST_MPIRUN", "").split(":") if path]


def name(path):
    """The folder of an environment, which has the name of its package."""
    return path.split("/")[-3] if path.count("/") >= 3 else path


def is_mpich(launcher):
    return "HYDRA" in subprocess.run([launcher, "--version"], capture_output=True, text=True).stdout


def command(launcher, ranks, *arguments, others=(), each=()):
    """The command that starts `gannet` with these arguments on so many ranks, and with each of the
    `others` on a further one; or on one rank with each of these words before it."""
    options = []
    if not is_mpich(launcher):
        options = ["--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]
    program = [os.environ["GANNET_BIN"], *arguments]
    if each:
        words = [word for before in each for word in [":", "-n", "1", *before, *program]]
        return [launcher, *options, *words[1:]]
    command = [launcher, *options, "-n", str(ranks), *program]
    for other in others:
        command += [":", "-n", "1", os.environ["GANNET_BIN"], *other]
    return command


class Ranks:
    """A command on ranks, whose output goes to files: a pipe would stay open with any process."""

    def __init__(
        self, folder, launcher, ranks, *arguments, others=(), each=(), **environment
    ):
        self.out, self.err = folder / "out", folder / "err"
        with open(self.out, "w") as out, open(self.err, "w") as err:
            self.process = subprocess.Popen(
                command(launcher, ranks, *arguments, others=others, each=each),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
                # In the usual folder Open MPI does not start where an ended launcher has left what
                # had the same process id.
                env={
                    **os.environ, "GANNET_THREADS": "1", "TMPDIR": str(folder), **environment
                },
            )

    def wait(self, seconds=LIMIT):
        """The exit code, the output and the errors; a launcher that does not end is ended."""
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.end()
            raise AssertionError(f"not ended after {seconds} s: {self.err.read_text()}")
        return self.process.returncode, self.out.read_text(), self.err.read_text()

    def end(self):
        """Ends everything that was started."""
        for process in [*self.pids(), self.process.pid]:
            try:
                os.kill(process, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.process.wait(30)

    def pids(self):
        """The processes of the ranks, by rank."""
        found = {}
        for process in filter(str.isdigit, os.listdir("/proc")):
            try:
                variables = open(f"/proc/{process}/environ", "rb").read().split(b"\0")
                parents = parents_of(int(process))
                program = os.readlink(f"/proc/{process}/exe")
            except OSError:
                continue
            ranks = [it.split(b"=")[1] for it in variables if it.startswith(RANK_VARIABLES)]
            own = program == os.path.realpath(os.environ["GANNET_BIN"])
            if own and ranks and self.process.pid in parents:
                found[int(ranks[0])] = int(process)
        return [found[rank] for rank in sorted(found)]

    def until(self, condition, seconds=LIMIT, what="not"):
        """Waits until `condition` gives something, and returns it."""
        return until(condition, seconds, what, self.err.read_text)


def until(condition, seconds, what, said):
    """Waits until `condition` gives something, and returns it; an error has what was `said`."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = condition()
        if found:
            return found
        time.sleep(0.02)
    raise AssertionError(f"{what} after {seconds} s: {said()}")


RANK_VARIABLES = (b"PMIX_RANK=", b"PMI_RANK=")


def parents_of(process):
    """The parent of a process, its parent, and so on."""
    parents = []
    while process > 1:
        fields = open(f"/proc/{process}/stat").read().rsplit(")", 1)[1].split()
        process = int(fields[1])
        parents.append(process)
    return parents
