package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"time"
	"unicode"
	"unicode/utf16"

	"github.com/txlock/txlock"
)

// picture is the JSON of status. Its names are documented there and must not change.
type picture struct {
	Server string        `json:"server"`
	At     time.Time     `json:"at"` // by this machine's clock
	Locks  []lockPicture `json:"locks"`
}

type lockPicture struct {
	Table   string           `json:"table"`
	Column  string           `json:"column"`
	Row     string           `json:"row"`
	Key     string           `json:"key"`
	Holder  *sessionPicture  `json:"holder"`
	Readers []sessionPicture `json:"readers"`           // who shares it; holder is null then
	Permits []sessionPicture `json:"permits,omitempty"` // those that hold a permit each, of a semaphore
	Waiters []sessionPicture `json:"waiters"`
}

type sessionPicture struct {
	ID          *string    `json:"id"` // null if the server does not say who holds the lock
	Key         string     `json:"key"`
	Application string     `json:"application"`
	Host        string     `json:"host"`
	Process     int        `json:"process"`
	User        string     `json:"user"`
	Database    string     `json:"database"`
	Since       *time.Time `json:"since"`       // by the server's clock; null when it is not known
	For         *float64   `json:"for_seconds"` // null when it is not known
	Idle        *bool      `json:"idle"`        // null when it is not known
	Statement   string     `json:"statement"`
	Shared      bool       `json:"shared"` // it shares the lock, or waits to share it
	Permit      *int       `json:"permit,omitempty"`
	By          string     `json:"by,omitempty"`       // who has a claim, which has no session
	Until       *time.Time `json:"until,omitempty"`    // its end, by the server's clock
	Prepared    string     `json:"prepared,omitempty"` // the name of a prepared transaction, which has no session
}

func (s *status) picture(holdings []txlock.Holding) picture {
	p := picture{Server: s.server.Address, At: time.Now().UTC().Truncate(time.Millisecond), Locks: []lockPicture{}}
	for _, h := range holdings {
		l := lockPicture{
			Table: h.Table, Column: h.Column, Row: h.Row, Key: h.Key,
			Readers: []sessionPicture{}, Waiters: []sessionPicture{},
		}
		if h.Holder != nil {
			holder := pictureOf(*h.Holder)
			l.Holder = &holder
		}
		for _, reader := range h.Readers {
			l.Readers = append(l.Readers, pictureOf(reader))
		}
		for _, holder := range h.Permits {
			permit := pictureOf(holder)
			permit.Permit = &holder.Permit
			l.Permits = append(l.Permits, permit)
		}
		for _, waiter := range h.Waiters {
			l.Waiters = append(l.Waiters, pictureOf(waiter))
		}
		p.Locks = append(p.Locks, l)
	}
	return p
}

func pictureOf(s txlock.Session) sessionPicture {
	p := sessionPicture{
		Key: s.Key, Application: s.Application, Host: s.Host, Process: s.Process, User: s.User,
		Database: s.Database, Statement: s.Statement, Shared: s.Shared, Prepared: s.Prepared,
	}
	if s.ID != "" {
		p.ID = &s.ID
	}
	if !s.Since.IsZero() {
		since, seconds := s.Since.UTC(), s.For.Truncate(time.Millisecond).Seconds()
		p.Since, p.For = &since, &seconds
	}
	if s.By != "" {
		until := s.Until.UTC()
		p.By, p.Until = s.By, &until
		return p
	}
	if s.Idle || !s.Since.IsZero() { // a server that hides what a session does also hides when that began
		p.Idle = &s.Idle
	}
	return p
}

// writeJSON escapes control characters, and characters that change the direction of writing, so
// that they do not reach a terminal. They occur only in strings, and programs read the same text
// from the escapes.
func writeJSON(out io.Writer, value any) error {
	var text, escaped bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return err
	}
	for _, r := range text.String() {
		switch {
		case r < 0x7f || !unicode.IsControl(r) && !unicode.Is(unicode.Cf, r):
			escaped.WriteRune(r)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&escaped, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&escaped, `\u%04x`, r)
		}
	}
	_, err := out.Write(escaped.Bytes())
	return err
}
