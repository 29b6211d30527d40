package serve

import (
	"context"
	"errors"
	"net/http"
	"net/url"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/holdings"
)

// heldBy returns the lock of a request with the one of its holders who has the session of the
// request, if there is one. That is what Break takes.
func (s state) heldBy(of url.Values) (h txlock.Holding, held bool) {
	h, _ = s.find(lockID{of.Get("table"), of.Get("column"), of.Get("row")})
	for _, holder := range holdings.Holders(h) {
		if holder.ID != "" && holder.ID == of.Get("session") {
			h.Holder = &holder
			return h, true
		}
	}
	return h, false
}

// question is what the page asks before it ends a session.
type question struct {
	Table, Column, Row   string // of the lock
	Session, Transaction string // of the holder
	Lock                 lockView
	Holder               sessionView
}

// confirm shows whose session would be ended, and changes nothing.
func (p *Page) confirm(w http.ResponseWriter, r *http.Request) {
	s, err := p.watch.newest(r.Context())
	if err != nil {
		return
	}
	h, held := s.heldBy(r.URL.Query())
	switch {
	case s.trouble() != "":
		p.answer(w, http.StatusServiceUnavailable, outcome{Text: "The server does not answer just now: " +
			"nobody knows whose session to end."})
	case !held:
		p.answer(w, http.StatusNotFound, outcome{Text: "The server does not show that session as a holder " +
			"of this lock."})
	default:
		withOrigin(w.Header())
		p.write(w, http.StatusOK, frame{Title: "End a session", Part: "break", Body: question{
			Table: h.Table, Column: h.Column, Row: h.Row, Session: h.Holder.ID, Transaction: h.Holder.Transaction,
			Lock: viewOf(h, mostShown), Holder: sessionOf(*h.Holder, h, 0),
		}})
	}
}

// outcome is what became of it.
type outcome struct {
	Done bool
	Text string
	Back string
}

func (p *Page) answer(w http.ResponseWriter, code int, o outcome) {
	title := "Nothing was ended"
	if o.Done {
		title = "The session was ended"
	}
	p.write(w, code, frame{Title: title, Part: "broken", Body: o})
}

// breakUp ends the session that was shown, if it still holds the lock in the transaction that was
// shown.
func (p *Page) breakUp(w http.ResponseWriter, r *http.Request, locks Locks) {
	if !ownPost(w, r) || r.ParseForm() != nil {
		return
	}
	s, err := p.watch.newest(r.Context())
	if err != nil {
		return
	}
	form := r.PostForm
	h, held := s.heldBy(form)
	about := outcome{
		Text: "The server does not show session " + clean(form.Get("session")) + " as a holder of this lock any more.",
		Back: "lock?" + lockID{form.Get("table"), form.Get("column"), form.Get("row")}.query().Encode(),
	}
	if !held {
		p.answer(w, http.StatusConflict, about)
		return
	}
	h.Holder.Transaction = form.Get("transaction")
	// Its viewer may leave. What has begun is brought to its end.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), p.limit)
	defer cancel()
	switch err := locks.Break(ctx, h); {
	case err == nil:
		about.Done = true
		about.Text = "Session " + clean(h.Holder.ID) + " was ended. The next in the queue gets the lock."
		p.answer(w, http.StatusOK, about)
	case errors.Is(err, txlock.ErrNotHeld):
		p.answer(w, http.StatusConflict, about)
	default:
		about.Text = "The server has not confirmed it: " + clean(cut(err.Error(), 300))
		p.answer(w, http.StatusBadGateway, about)
	}
}
