package servers

import (
	"context"
	"net/http"
	"path/filepath"
	"strconv"
	"syscall"
)

// prometheus is Debian's, with the C library that it runs on.
var prometheus = Packages{"bookworm", []string{"prometheus", "libc6"}, false}

// StartPrometheus starts a private Prometheus, whose DSN is the address of its API. The file of
// rules is called rules.yml in its configuration.
func StartPrometheus(ctx context.Context, configuration, rules string) (*Server, error) {
	tool, _, err := toolOf(ctx, "prometheus", []string{"--version"}, "Prometheus", prometheus, "usr/bin/prometheus")
	if err != nil {
		return nil, err
	}
	return startPrivate(ctx, "", func(folder string, port int) plan {
		file, address := filepath.Join(folder, "prometheus.yml"), "127.0.0.1:"+strconv.Itoa(port)
		return plan{
			name: "Prometheus", origin: tool.Origin, dsn: "http://" + address, ending: syscall.SIGTERM,
			files: map[string]string{file: configuration, filepath.Join(folder, "rules.yml"): rules},
			run: append(tool.Line, "--config.file="+file, "--storage.tsdb.path="+dataIn(folder),
				"--web.listen-address="+address, "--log.level=warn"),
			answers: func(ctx context.Context, dsn string) error {
				_, err := overHTTP(ctx, http.MethodGet, dsn+"/-/ready", "")
				return err
			},
		}
	})
}

// Promtool checks metrics and rules, and tests rules.
func Promtool(ctx context.Context) (Tool, error) {
	tool, _, err := toolOf(ctx, "promtool", []string{"--version"}, "Prometheus", prometheus, "usr/bin/promtool")
	return tool, err
}
