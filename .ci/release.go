// Command release writes a module proxy in the file system. It has a release of every module of the
// tree that users get. The go command downloads from it as it will from the real proxies after the
// release.
//
//	go run .ci/release.go VERSION PROXY_FOLDER MODULE_FOLDER...
package main

import (
	"archive/zip"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

func main() {
	version, proxy := os.Args[1], os.Args[2]
	for _, folder := range os.Args[3:] {
		if err := release(version, proxy, folder); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}

func release(version, proxy, folder string) error {
	file := filepath.Join(folder, "go.mod")
	path, err := exec.Command("go", "mod", "edit", "-print", file).Output()
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	line, _, _ := strings.Cut(string(path), "\n")
	module := strings.TrimPrefix(line, "module ")
	if strings.Contains(string(path), "\nreplace ") {
		return fmt.Errorf("%s has a replace: go install would refuse it", file)
	}
	at := filepath.Join(proxy, module, "@v")
	if err := os.MkdirAll(at, 0o755); err != nil {
		return err
	}
	for name, text := range map[string]string{
		"list":            version + "\n",
		version + ".info": fmt.Sprintf(`{"Version": %q}`, version),
		version + ".mod":  string(path),
	} {
		if err := os.WriteFile(filepath.Join(at, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return pack(filepath.Join(at, version+".zip"), module+"@"+version, folder)
}

// pack writes the zip of a module: the files of its folder, without those of nested modules.
func pack(file, prefix, folder string) error {
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	defer out.Close()
	packed := zip.NewWriter(out)
	err = filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && path != folder {
			if _, err := os.Stat(filepath.Join(path, "go.mod")); err == nil || entry.Name() == ".git" {
				return filepath.SkipDir
			}
		}
		if !entry.Type().IsRegular() {
			return nil
		}
		name, err := filepath.Rel(folder, path)
		if err != nil {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		entryFile, err := packed.Create(prefix + "/" + filepath.ToSlash(name))
		if err != nil {
			return err
		}
		_, err = entryFile.Write(text)
		return err
	})
	if err != nil {
		return err
	}
	return packed.Close()
}
