package servers

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
)

// freshData creates a data folder in the cache, unless it is there, for all servers of these
// programs to copy. To create one takes a processor 2.4 s with MySQL and 1.1 s with PostgreSQL, to
// copy it 0.2 s.
func (p programs) freshData(ctx context.Context, kind Kind) (string, error) {
	line := append(slices.Clone(p.server), "--version")
	version, err := exec.CommandContext(ctx, line[0], line[1:]...).Output()
	if err != nil {
		return "", fmt.Errorf("%q: %w", line, err)
	}
	cache, err := cacheFolder()
	if err == nil {
		err = makeReadable(cache)
	}
	if err != nil {
		return "", err
	}
	kept := filepath.Join(cache, fmt.Sprintf("%08x.data", crc32.ChecksumIEEE(append(version, p.origin...))))
	if _, err := os.Stat(kept); err == nil {
		return kept, nil
	}
	folder, err := os.MkdirTemp(filepath.Dir(kept), "data-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(folder)
	if err := giveAway(folder); err != nil {
		return "", err
	}
	made := &instance{folder: folder}
	if err := made.setUp(ctx, p.initialize(kind, dataIn(folder))); err != nil {
		return "", err
	}
	// Each server of MySQL makes an identity of its own.
	if err := os.RemoveAll(filepath.Join(dataIn(folder), "auto.cnf")); err != nil {
		return "", err
	}
	if err := os.Rename(dataIn(folder), kept); err != nil && !errors.Is(err, fs.ErrExist) { // another was first
		return "", err
	}
	return kept, nil
}
