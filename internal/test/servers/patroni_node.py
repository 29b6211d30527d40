# patroni_node.py ROOT FOLDER
# Runs Patroni of the tree below ROOT, with FOLDER/patroni.yml. Patroni starts PostgreSQL so that it
# is no child of its own. Here it becomes one of this process, above all that a node runs.
import ctypes, multiprocessing.spawn, os, signal, sys

PR_SET_CHILD_SUBREAPER = 36


def patroni(root, folder):
    python = folder + "/python"  # Patroni starts PostgreSQL by another Python
    os.chmod(python, 0o700)
    multiprocessing.spawn.set_executable(python)
    sys.path.insert(0, root + "/usr/lib/python3/dist-packages")
    sys.argv = ["patroni", folder + "/patroni.yml"]
    from patroni.__main__ import main
    main()


if __name__ == "__main__":  # the other Python reads this file, too
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    child = os.fork()
    if child == 0:
        patroni(*sys.argv[1:])
        sys.exit()
    signal.signal(signal.SIGTERM, lambda number, frame: os.kill(child, number))
    while True:
        try:
            os.wait()
        except ChildProcessError:
            break
