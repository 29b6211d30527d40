package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/txlock/txlock/bench/report"
	"github.com/txlock/txlock/bench/results"
)

// draw writes the report, or the picture of pools, of existing results.
func draw(what string, files []string) error {
	found, err := results.Read(files[0])
	if err != nil {
		return err
	}
	if what == "report" && len(files) == 1 {
		return writeReport(files[0], found)
	}
	if what != "pools" || len(files) != 2 {
		return fmt.Errorf("%s %q is not understood: see bench -h", what, files)
	}
	return write(files[1], func(w io.Writer) error { return report.Pools(w, *found) })
}

// write writes a file.
func write(path string, content func(io.Writer) error) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	if err := errors.Join(content(file), file.Close()); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// writeReport writes the page next to the file of results, and prints the short table.
func writeReport(path string, found *results.Run) error {
	page := strings.TrimSuffix(path, ".json") + ".html"
	if err := write(page, func(w io.Writer) error { return report.HTML(w, *found) }); err != nil {
		return err
	}
	if err := report.Markdown(os.Stdout, *found); err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "\nresults: %s\nreport:  %s\n", path, page)
	return nil
}
