# Before the lines of an attempt, which stand in the place of the three dots.
import array, ctypes, os, signal, socket, struct, sys

C = ctypes.CDLL(None, use_errno=True)
N = int(sys.argv[1])
SCENE = os.environ["CONFINE_SCENE"]
OUTSIDE = int(os.environ["CONFINE_OUTSIDE"])
KEY = SCENE + "/home/.ssh/id_ed25519"
VICTIM = SCENE + "/home/victim"


def call(number, *arguments):
    arguments = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    result = C.syscall(ctypes.c_long(number), *arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), "")
    return result


try:
    ...
except OSError as error:
    print("errno", error.errno)
else:
    print("ok")
