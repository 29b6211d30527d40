package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/txlock/txlock/bench/report"
	"github.com/txlock/txlock/bench/results"
)

// writeReport writes the page next to the file of results, and prints the short table.
func writeReport(path string, found *results.Run) (err error) {
	page := strings.TrimSuffix(path, ".json") + ".html"
	file, err := os.Create(page)
	if err != nil {
		return err
	}
	defer func() {
		if closed := file.Close(); err == nil {
			err = closed
		}
	}()
	if err := report.HTML(file, *found); err != nil {
		return fmt.Errorf("write %s: %w", page, err)
	}
	if err := report.Markdown(os.Stdout, *found); err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "\nresults: %s\nreport:  %s\n", path, page)
	return nil
}
