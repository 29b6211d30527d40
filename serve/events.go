package serve

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"time"
)

func rendered(name string, data any) ([]byte, error) {
	var text bytes.Buffer
	err := templates.ExecuteTemplate(&text, name, data)
	return text.Bytes(), err
}

// sending is how long a viewer may take to receive an event. Who is slower is dropped, and its
// browser comes back by itself.
const sending = 10 * time.Second

// follow sends a view whenever the picture changes, as server-sent events: "state" says what is
// wrong, "picture" is a fragment of the page.
func (p *Page) follow(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	part := query.Get("of")
	if part != "list" && part != "graph" && part != "lock" {
		refuse(w, http.StatusBadRequest, "There are no such events.")
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // for nginx
	if r.Method == http.MethodHead {
		return // nobody looks
	}
	stream := http.NewResponseController(w)
	send := func(text []byte) error {
		err := stream.SetWriteDeadline(time.Now().Add(p.sending))
		if err != nil && !errors.Is(err, http.ErrNotSupported) {
			return err
		}
		if _, err := w.Write(text); err != nil {
			return err
		}
		return stream.Flush()
	}
	p.watch.join()
	defer p.watch.leave()
	if send([]byte("retry: 2000\n\n")) != nil {
		return
	}
	for number, told := p.watch.outdated(), "-"; ; {
		s, err := p.watch.after(r.Context(), number)
		if err != nil || !p.logins.in(r) { // the login has ended meanwhile
			return
		}
		number = s.number
		var text bytes.Buffer
		if trouble := s.trouble(); trouble != told {
			told = trouble
			event(&text, "state", []byte(trouble))
		}
		fragment, err := rendered(part, p.body(part, query, s))
		if err != nil {
			return
		}
		event(&text, "picture", fragment)
		if send(text.Bytes()) != nil {
			return
		}
	}
}

// event writes a server-sent event. Each line of its data is a field of its own.
func event(to *bytes.Buffer, name string, data []byte) {
	fmt.Fprintf(to, "event: %s\n", name)
	for line := range bytes.SplitSeq(bytes.TrimRight(data, "\n"), []byte("\n")) {
		to.WriteString("data: ")
		to.Write(bytes.ReplaceAll(line, []byte("\r"), nil))
		to.WriteString("\n")
	}
	to.WriteString("\n")
}
