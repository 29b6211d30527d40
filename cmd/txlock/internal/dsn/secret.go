package dsn

import (
	"net/url"
	"regexp"
	"slices"
	"strings"
)

const hidden = "xxxxx"

var (
	inUserinfo  = regexp.MustCompile(`(://[^\s:@/?]*:)[^\s]*(@)`)
	inSource    = regexp.MustCompile(`([^\s:]*:)\S*(@(?:tcp|unix)\()`)
	inParameter = regexp.MustCompile(`(?i)((?:ssl)?password=)[^\s&]+`)
)

// Redact hides whatever is, or looks like, a password: this server's own wherever it occurs, and
// that of any URL.
func (s Server) Redact(text string) string {
	for _, secret := range s.secrets {
		text = strings.ReplaceAll(text, secret, hidden)
	}
	return Redact(text)
}

// Redact hides the passwords of URLs, and of data source names, in text.
func Redact(text string) string {
	text = inUserinfo.ReplaceAllString(text, "${1}"+hidden+"${2}")
	text = inSource.ReplaceAllString(text, "${1}"+hidden+"${2}")
	return inParameter.ReplaceAllString(text, "${1}"+hidden)
}

// keepSecret has Redact hide the password in all spellings that a URL may give it. A very short
// password, or one that is also a public name, is hidden in URLs only. Hidden everywhere, it would
// tear messages apart, and the gaps would reveal it.
func (s *Server) keepSecret(text, password string, public ...string) {
	raw := ""
	if from, to := passwordIn(text); to > from {
		raw = text[from:to]
	}
	for _, secret := range []string{password, raw, url.QueryEscape(password), url.PathEscape(password)} {
		known := slices.ContainsFunc(public, func(name string) bool { return strings.Contains(name, secret) })
		if len(secret) >= 4 && !known && !slices.Contains(s.secrets, secret) {
			s.secrets = append(s.secrets, secret)
		}
	}
}

// sourceEnd is behind the password of a data source name.
var sourceEnd = regexp.MustCompile(`@(tcp|unix)\(`)

// passwordIn returns where the password is in the user part of a URL or a data source name. Both
// are 0 if there is none. In a malformed URL it prefers too much to too little.
func passwordIn(text string) (from, to int) {
	begin, end := 0, strings.LastIndexByte(text, '@')
	if at := strings.Index(text, "://"); at >= 0 && at == strings.IndexByte(text, ':') {
		begin = at + len("://")
	} else if !sourceEnd.MatchString(text) {
		return 0, 0
	}
	colon := strings.IndexByte(text[begin:], ':')
	if colon < 0 || end < begin+colon+1 {
		return 0, 0
	}
	return begin + colon + 1, end
}

// Scrub overwrites the passwords of a URL in place, because all users of the machine can read a
// program's arguments. It reports whether there was one.
func Scrub(argument []byte) bool {
	found := false
	overwrite := func(from, to int) {
		for i := from; i < to; i++ {
			argument[i] = 'x'
			found = true
		}
	}
	from, to := passwordIn(string(argument))
	overwrite(from, to)
	for _, match := range inParameter.FindAllSubmatchIndex(argument, -1) {
		overwrite(match[3], match[1])
	}
	return found
}
