package dsn

import (
	"cmp"
	"fmt"
	"net"
	"net/url"
	"regexp"
	"strings"

	"github.com/go-sql-driver/mysql"
)

// sourceName is user:password@tcp(host:port)/database?params. The driver splits it at the last /
// and the last @ before that: neither may belong to a password.
var sourceName = regexp.MustCompile(`^(.*@)?(tcp|unix)\([^)@]*\)/[^/@]*$`)

// parseSourceName reads a data source name, with the parameters that parseMySQL takes.
func parseSourceName(text string, getenv func(string) string) (Server, error) {
	address, query, _ := strings.Cut(text[strings.LastIndexByte(text, '/'):], "?")
	config, err := configOf(text[:strings.LastIndexByte(text, '/')]+address, query)
	if err != nil {
		return Server{}, err
	}
	config.Passwd = cmp.Or(config.Passwd, getenv("MYSQL_PWD"))
	return serverOf(text, config)
}

// parseMySQL reads mysql://user:password@host:port/database?params. The parameters are those of
// go-sql-driver/mysql, ssl-mode, and socket, the path of a Unix-domain socket.
func parseMySQL(text string, getenv func(string) string) (Server, error) {
	u, err := url.Parse(text)
	if err != nil || u.Opaque != "" {
		return Server{}, fmt.Errorf("%w: %s", ErrURL, hintEscape)
	}
	config, err := configOf("/", u.RawQuery)
	if err != nil {
		return Server{}, err
	}
	if config.Net == "tcp" {
		config.Addr = net.JoinHostPort(cmp.Or(u.Hostname(), "localhost"), cmp.Or(u.Port(), "3306"))
	}
	config.User, config.DBName = u.User.Username(), strings.TrimPrefix(u.Path, "/")
	var given bool
	if config.Passwd, given = u.User.Password(); !given {
		config.Passwd = getenv("MYSQL_PWD")
	}
	return serverOf(text, config)
}

// tlsOf has the driver's tls for the words of MySQL's programs, ssl-mode=VERIFY_CA, and of libpq,
// sslmode=verify-ca. As there, what is required is not verified.
var tlsOf = map[string]string{
	"disabled": "false", "disable": "false", "preferred": "preferred", "prefer": "preferred", "allow": "preferred",
	"required": "skip-verify", "require": "skip-verify",
	"verify-ca": "true", "verify-identity": "true", "verify-full": "true",
}

// configOf has the driver read a data source name and a query, of which it does not know all.
func configOf(name, query string) (*mysql.Config, error) {
	var known []string
	socket := ""
	for parameter := range strings.SplitSeq(query, "&") {
		switch name, value, _ := strings.Cut(parameter, "="); strings.ToLower(name) {
		case "":
		case "socket":
			if unescaped, err := url.QueryUnescape(value); err == nil {
				value = unescaped
			}
			socket = value
		case "ssl-mode", "sslmode":
			tls := tlsOf[strings.ReplaceAll(strings.ToLower(value), "_", "-")]
			if tls == "" {
				return nil, fmt.Errorf(
					"%w: ssl-mode must be DISABLED, PREFERRED, REQUIRED, VERIFY_CA or VERIFY_IDENTITY", ErrURL)
			}
			known = append(known, "tls="+tls)
		default:
			known = append(known, parameter)
		}
	}
	config, err := mysql.ParseDSN(name + "?" + strings.Join(known, "&"))
	if err != nil {
		return nil, fmt.Errorf("%w: its parameters: %w", ErrURL, err)
	}
	if socket != "" {
		config.Net, config.Addr = "unix", socket
	}
	return config, nil
}

// serverOf is the server of a config, which it completes.
func serverOf(text string, config *mysql.Config) (Server, error) {
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
	server.keepSecret(text, config.Passwd, config.User, config.DBName, config.Addr)
	return server, nil
}
