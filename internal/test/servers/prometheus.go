package servers

import "context"

// prometheus is Debian's, with the C library that it runs on.
var prometheus = Packages{"bookworm", []string{"prometheus", "libc6"}, false}

// Promtool checks metrics and rules, and tests rules.
func Promtool(ctx context.Context) (Tool, error) {
	tool, _, err := toolOf(ctx, "promtool", []string{"--version"}, "Prometheus", prometheus, "usr/bin/promtool")
	return tool, err
}
