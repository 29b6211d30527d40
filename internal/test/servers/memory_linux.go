package servers

import (
	"os"
	"syscall"
)

const (
	tmpfs = 0x01021994 // TMPFS_MAGIC of statfs(2)
	// roomInMemory must be free: the servers that one run of all tests has at once.
	roomInMemory = 8 << 30
)

// inMemory is a folder for the data of servers that need not outlive the machine. It is empty where
// there is too little memory, or TMPDIR names a folder. Tests make and delete files by the
// thousand: on ext4, which looks for a free inode past those just deleted, that took a tenth of
// their time.
func inMemory() string {
	var there syscall.Statfs_t
	if os.Getenv("TMPDIR") != "" || syscall.Statfs(sharedMemory, &there) != nil || there.Type != tmpfs ||
		there.Bavail*uint64(there.Bsize) < roomInMemory {
		return ""
	}
	return sharedMemory
}
