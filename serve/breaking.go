package serve

import (
	"context"
	"crypto/rand"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/holdings"
)

const (
	offerLasts = 10 * time.Minute
	mostOffers = 1000
)

// offers are the holders that were shown to somebody who may want to end them, by random numbers.
// Each can be taken once.
type offers struct {
	mu    sync.Mutex
	shown map[string]offer
	order []string // the oldest first
}

type offer struct {
	holding txlock.Holding
	until   time.Time
}

func (o *offers) make(h txlock.Holding) (number string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.shown == nil {
		o.shown = map[string]offer{}
	}
	for len(o.order) > 0 && (len(o.order) >= mostOffers || time.Now().After(o.shown[o.order[0]].until)) {
		delete(o.shown, o.order[0])
		o.order = o.order[1:]
	}
	number = rand.Text()
	o.shown[number] = offer{h, time.Now().Add(offerLasts)}
	o.order = append(o.order, number)
	return number
}

func (o *offers) take(number string) (txlock.Holding, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	taken, ok := o.shown[number]
	delete(o.shown, number)
	return taken.holding, ok && time.Now().Before(taken.until)
}

// heldBy returns the holding with the one of its holders who has this session, if there is one.
// That is what Break takes.
func heldBy(h txlock.Holding, session string) (txlock.Holding, bool) {
	for _, holder := range holdings.Holders(h) {
		if holder.ID != "" && holder.ID == session {
			h.Holder = &holder
			return h, true
		}
	}
	return h, false
}

// question is what the page asks before it ends a session.
type question struct {
	Number string
	Lock   lockView
	Holder sessionView
}

// confirm shows whose session would be ended, and changes nothing.
func (p *Page) confirm(w http.ResponseWriter, r *http.Request) {
	s, err := p.watch.newest(r.Context())
	if err != nil {
		return
	}
	query := r.URL.Query()
	h, found := s.find(lockID{query.Get("table"), query.Get("column"), query.Get("row")})
	h, held := heldBy(h, query.Get("session"))
	switch {
	case s.trouble() != "":
		p.answer(w, http.StatusServiceUnavailable, outcome{Text: "The server does not answer just now: " +
			"nobody knows whose session to end."})
	case !found || !held:
		p.answer(w, http.StatusNotFound, outcome{Text: "That session does not hold this lock any more."})
	default:
		withOrigin(w.Header())
		p.write(w, http.StatusOK, frame{Title: "End a session", Part: "break", Body: question{
			p.offers.make(h), viewOf(h, mostShown), sessionOf(*h.Holder, h, 0),
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

// breakUp ends the session that was shown under the number of the form.
func (p *Page) breakUp(w http.ResponseWriter, r *http.Request, locks Locks) {
	if !ownPost(w, r) {
		return
	}
	h, ok := p.offers.take(r.PostFormValue("shown"))
	if !ok {
		p.answer(w, http.StatusGone, outcome{Text: "That page was shown too long ago, or its button was used before."})
		return
	}
	// Its viewer may leave. What has begun is brought to its end.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), p.limit)
	defer cancel()
	err := locks.Break(ctx, h)
	about := outcome{Back: "lock?" + idOf(h).query().Encode()}
	switch {
	case err == nil:
		about.Done = true
		about.Text = "Session " + clean(h.Holder.ID) + " was ended. The next in the queue gets the lock."
		p.answer(w, http.StatusOK, about)
	case errors.Is(err, txlock.ErrNotHeld):
		about.Text = "Session " + clean(h.Holder.ID) + " does not hold the lock any more."
		p.answer(w, http.StatusConflict, about)
	default:
		about.Text = "The server has not confirmed it: " + clean(cut(err.Error(), 300))
		p.answer(w, http.StatusBadGateway, about)
	}
}
