package dsn

import (
	"fmt"
	"net"
	"net/url"
	"strings"

	"github.com/go-sql-driver/mysql"
)

// parseMySQL turns mysql://user:password@host:port/database?params into a data source name. The
// parameters are those of go-sql-driver/mysql, and socket, the path of a Unix-domain socket.
func parseMySQL(text string, getenv func(string) string) (Server, error) {
	u, err := url.Parse(text)
	if err != nil || u.Opaque != "" {
		return Server{}, fmt.Errorf("%w: %s", ErrURL, hintEscape)
	}
	socket, query := socketIn(u.RawQuery)
	config, err := mysql.ParseDSN("/?" + query)
	if err != nil {
		return Server{}, fmt.Errorf("%w: its parameters: %w", ErrURL, err)
	}
	config.User = u.User.Username()
	password, given := u.User.Password()
	if !given {
		password = getenv("MYSQL_PWD")
	}
	config.Passwd = password
	config.DBName = strings.TrimPrefix(u.Path, "/")
	config.Net, config.Addr = "tcp", net.JoinHostPort(hostOf(u), portOf(u))
	if socket != "" {
		config.Net, config.Addr = "unix", socket
	}
	if config.Timeout <= 0 {
		config.Timeout = connectTimeout
	}
	if !strings.Contains(config.ConnectionAttributes, "program_name:") {
		config.ConnectionAttributes = strings.TrimPrefix(config.ConnectionAttributes+",program_name:txlock", ",")
	}
	server := Server{
		System: MySQL, Driver: config.FormatDSN(), Address: config.Addr + "/" + config.DBName,
		Database: config.DBName, Timeout: config.Timeout,
	}
	// A data source name cannot express some characters, such as a colon in the user's name.
	again, err := mysql.ParseDSN(server.Driver)
	if err != nil || again.User != config.User || again.Passwd != config.Passwd || again.Addr != config.Addr ||
		again.DBName != config.DBName {
		return Server{}, fmt.Errorf("%w: the driver cannot take this user, or this address", ErrURL)
	}
	server.keepSecret(text, password, config.User, config.DBName, u.Hostname())
	return server, nil
}

func hostOf(u *url.URL) string {
	if host := u.Hostname(); host != "" {
		return host
	}
	return "localhost"
}

func portOf(u *url.URL) string {
	if port := u.Port(); port != "" {
		return port
	}
	return "3306"
}

// socketIn cuts the socket parameter out of a query and leaves the others as they are.
func socketIn(query string) (socket, others string) {
	var kept []string
	for _, parameter := range strings.Split(query, "&") {
		if value, found := strings.CutPrefix(parameter, "socket="); found {
			if unescaped, err := url.QueryUnescape(value); err == nil {
				value = unescaped
			}
			socket = value
			continue
		}
		if parameter != "" {
			kept = append(kept, parameter)
		}
	}
	return socket, strings.Join(kept, "&")
}
