package servers

import (
	"os"
	"syscall"
)

// nobody is who servers run as when root starts them: PostgreSQL refuses to run as root.
const nobody = 65534

// quickly is the signal to which PostgreSQL shuts down at once. MySQL and MariaDB just die of it; their data is thrown away.
const quickly = syscall.SIGQUIT

func asNobody() *syscall.SysProcAttr {
	attributes := &syscall.SysProcAttr{Setpgid: true} // not to be hit by a ctrl-C: we stop it
	if os.Getuid() == 0 {
		attributes.Credential = &syscall.Credential{Uid: nobody, Gid: nobody, NoSetGroups: false}
	}
	return attributes
}

func dieWithParent(attributes *syscall.SysProcAttr) { attributes.Pdeathsig = quickly }

func giveAway(folder string) error {
	if os.Getuid() != 0 {
		return nil
	}
	return os.Chown(folder, nobody, nobody)
}

func alive(pid int) bool { return syscall.Kill(pid, 0) != syscall.ESRCH }

// exclusively locks a file until the process ends or it is closed.
func exclusively(file *os.File) error { return syscall.Flock(int(file.Fd()), syscall.LOCK_EX) }
