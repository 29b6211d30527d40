package servers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Browser is a Chromium that can be started.
type Browser struct {
	Program     string
	Environment []string // besides this process's own
	Origin      string   // how it was found, in one line
}

// Chromium finds the browser of this machine, or else unpacks Debian's packages into the cache. It
// writes what the browser needs to find its libraries and fonts into folder.
func Chromium(ctx context.Context, folder string) (Browser, error) {
	if path, err := exec.LookPath("chromium"); err == nil {
		return Browser{Program: path, Origin: path}, nil
	}
	b, err := unpackedChromium(ctx, folder)
	if err != nil {
		return Browser{}, fmt.Errorf("no Chromium to test with: install the package chromium; tried to unpack it: %w",
			err)
	}
	return b, nil
}

func unpackedChromium(ctx context.Context, folder string) (Browser, error) {
	from := Packages{"bookworm", []string{"chromium", "chromium-common", "fonts-dejavu-core", "fonts-liberation"}, true}
	root, err := unpacked(ctx, "chromium", from)
	if err != nil {
		return Browser{}, err
	}
	b := Browser{Program: filepath.Join(root, "usr/lib/chromium/chromium"), Origin: unpackedOrigin(from.Suite, root)}
	// A browser starts itself again for its other processes, by the name of what runs. So it cannot
	// run on the tree's C library, as servers do. It runs on the machine's own, and takes from the
	// tree what the machine lacks.
	libraries := filepath.Join(folder, "libraries")
	if err := linkMissing(root, libraries); err != nil {
		return Browser{}, err
	}
	fonts := filepath.Join(folder, "fonts.conf")
	b.Environment = []string{"LD_LIBRARY_PATH=" + libraries, "FONTCONFIG_FILE=" + fonts}
	return b, os.WriteFile(fonts, fmt.Appendf(nil, `<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "urn:fontconfig:fonts.dtd">
<fontconfig><dir>%s</dir><cachedir>%s</cachedir></fontconfig>
`, filepath.Join(root, "usr/share/fonts"), filepath.Join(folder, "fonts")), 0o644)
}

// linkMissing fills a folder with links to the libraries of a tree that the machine does not have.
func linkMissing(root, folder string) error {
	found, err := filepath.Glob(filepath.Join(root, "usr/lib/*-linux-gnu*/*.so*"))
	more, moreErr := filepath.Glob(filepath.Join(root, "usr/lib/*-linux-gnu*/pulseaudio/*.so*"))
	if err := errors.Join(err, moreErr, os.MkdirAll(folder, 0o755)); err != nil {
		return err
	}
	for _, path := range append(found, more...) {
		if _, err := os.Stat(strings.TrimPrefix(path, root)); err == nil {
			continue
		}
		if err := os.Symlink(path, filepath.Join(folder, filepath.Base(path))); err != nil {
			return err
		}
	}
	return nil
}
