// Command house measures how much of the product there is to know, and fails above the bounds of
// the file bounds. It runs in the project's root folder.
//
//	go run ./internal/house          one line for each figure
//	go run ./internal/house -lower   lowers the bounds to what is measured
//	go run ./internal/house -v       names the functions that know many capabilities
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
)

const boundsFile = "internal/house/bounds"

// figure is one thing that is measured.
type figure struct {
	name  string
	value int
}

func main() {
	lower := flag.Bool("lower", false, "lower the bounds to what is measured")
	verbose := flag.Bool("v", false, "name the functions that know many capabilities")
	flag.Parse()
	figures, err := measure(context.Background(), *verbose)
	if err == nil {
		err = compare(figures, *lower)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "house:", err)
		os.Exit(1)
	}
}

func measure(ctx context.Context, verbose bool) ([]figure, error) {
	product, err := readProduct()
	if err != nil {
		return nil, err
	}
	crossings, err := product.crossings()
	if err != nil {
		return nil, err
	}
	if verbose {
		fmt.Println(strings.Join(crossings, "\n"))
	}
	paths, err := product.paths(ctx)
	figures := append(product.lines(), product.seam()...)
	figures = append(figures, figure{fmt.Sprintf("functions that know %d capabilities or more", many), len(crossings)})
	return append(figures, paths...), err
}

// compare prints the figures beside their bounds. With lower it writes the smaller of the two as
// the bounds, and those of figures that have none.
func compare(figures []figure, lower bool) error {
	bounds, err := readBounds()
	if err != nil {
		return err
	}
	var above []string
	file := "# What internal/house may measure at most. The numbers only go down: go run ./internal/house -lower\n"
	for _, f := range figures {
		bound, known := bounds[f.name]
		if lower && (!known || f.value < bound) {
			bound = f.value
		}
		if f.value > bound {
			above = append(above, f.name)
		}
		fmt.Printf("%6d of %6d  %s\n", f.value, bound, f.name)
		file += fmt.Sprintf("%6d  %s\n", bound, f.name)
	}
	if lower {
		if err := os.WriteFile(boundsFile, []byte(file), 0o644); err != nil {
			return err
		}
	}
	if len(above) > 0 {
		return fmt.Errorf("above the bounds of %s: %s: take something away", boundsFile, strings.Join(above, "; "))
	}
	return nil
}

func readBounds() (map[string]int, error) {
	lines, err := readLines(boundsFile)
	bounds := make(map[string]int, len(lines))
	for _, line := range lines {
		number, name, _ := strings.Cut(line, "  ")
		if bounds[name], err = strconv.Atoi(number); err != nil {
			return nil, fmt.Errorf("%s: %w", boundsFile, err)
		}
	}
	return bounds, err
}

// readLines returns the lines of a file that are neither empty nor comments.
func readLines(file string) (lines []string, err error) {
	text, err := os.ReadFile(file)
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			lines = append(lines, line)
		}
	}
	return lines, err
}
