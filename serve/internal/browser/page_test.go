package browser_test

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/eventually"
	"github.com/txlock/txlock/serve"
)

// everyLook goes through the widths and colours.
func (b *tab) everyLook() {
	b.t.Helper()
	grounds := map[string]string{}
	for _, width := range []int64{1280, 400} {
		for _, scheme := range []string{"light", "dark"} {
			b.size(width)
			b.scheme(scheme)
			b.fits()
			require.Empty(b.t, is[[]string](b, pale), "hard to read, in %s colours", scheme)
			grounds[scheme] = is[string](b, "getComputedStyle(document.body).backgroundColor")
		}
	}
	require.NotEqual(b.t, grounds["light"], grounds["dark"])
	b.accessible()
}

// pale are texts whose colour has less than 4.5 times the contrast to the ground below it that WCAG
// asks for (2.2, 1.4.3).
const pale = `(() => {
	const rgb = text => text.match(/[\d.]+/g).map(Number)
	const light = text => rgb(text).slice(0, 3).map(c => c / 255)
		.map(c => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
		.reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0)
	const clear = text => text === 'none' || rgb(text).length === 4 && rgb(text)[3] === 0
	const ground = e => {
		for (; e; e = e.parentElement) {
			if (!clear(getComputedStyle(e).backgroundColor)) return getComputedStyle(e).backgroundColor
		}
		return 'rgb(255, 255, 255)'
	}
	return [...document.body.querySelectorAll('*')]
		.filter(e => [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim()) && e.getClientRects().length)
		.filter(e => !['SCRIPT', 'STYLE'].includes(e.tagName))
		.map(e => {
			const style = getComputedStyle(e)
			const two = [light(style.color), light(ground(e))].sort((a, b) => b - a)
			return [(two[0] + 0.05) / (two[1] + 0.05), e.textContent.trim()]
		})
		.filter(([ratio]) => ratio < 4.5).map(([ratio, text]) => ratio.toFixed(2) + ' ' + text)
})()`

// accessible checks what a screen reader and a keyboard need.
func (b *tab) accessible() {
	b.t.Helper()
	for _, wrong := range []string{
		"table:not(:has(caption))", "th:not([scope])", "a:not([href])",
		"svg",
		"[onclick]", "[tabindex]:not([tabindex='0'], [tabindex='-1'])", "div[role=button]", "html:not([lang])",
	} {
		require.Zero(b.t, is[int](b, fmt.Sprintf("document.querySelectorAll(%q).length", wrong)), wrong)
	}
	require.Equal(b.t, 1, is[int](b, "document.querySelectorAll('h1').length"))
	require.Equal(b.t, 1, is[int](b, "document.querySelectorAll('main').length"))
	count := func(of, which string) int {
		b.t.Helper()
		return is[int](b, fmt.Sprintf("[...document.querySelectorAll(%q)].filter(e => %s).length", of, which))
	}
	require.Zero(b.t, count("input:not([type=hidden], [hidden])", "!e.labels.length"))
	require.Zero(b.t, count("a, button", "!e.textContent.trim()"))
	require.Zero(b.t, is[int](b,
		"(ids => ids.length - new Set(ids).size)([...document.querySelectorAll('[id]')].map(e => e.id))"), "ids twice")
}

func TestLooks(t *testing.T) {
	f := serving(t)
	b := f.open(t, "/")
	b.see("The server shows no locks.")
	b.everyLook()
	f.hold(t, "sku:42")
	f.hold(t, "nightly-report")
	f.hold(t, "a key that is rather long, so that it has to be cut")
	for range 3 {
		f.wait(t, "sku:42")
	}
	b.see("3 locks held or awaited, 3 sessions wait.") // without loading the page again
	require.Equal(t, []string{"1.", "2.", "3."},
		is[[]string](b, "[...document.querySelectorAll('tr.waiter th')].map(e => e.textContent.trim())"))
	b.everyLook()
	b.go_(f.lockPath(t, "sku:42"))
	b.see("Queue")
	b.everyLook()
	b.go_("/?key=night")
	b.see("1 lock with “night” in a key, of 3 locks.")
}

func (f *fixture) lockPath(t *testing.T, key string) string {
	t.Helper()
	holdings, err := f.locks.Inspect(background, key)
	require.NoError(t, err)
	require.Len(t, holdings, 1)
	return "/lock?" + url.Values{"table": {holdings[0].Table}, "row": {holdings[0].Row}}.Encode()
}

// next waits for the next picture.
func (b *tab) next() {
	b.t.Helper()
	before := is[string](b, "document.querySelector('.asof').textContent")
	b.until(fmt.Sprintf("document.querySelector('.asof').textContent !== %q", before))
}

// A picture that comes in leaves alone what somebody is doing.
func TestFocusStays(t *testing.T) {
	f := serving(t)
	f.hold(t, "a")
	b := f.open(t, "/")
	b.see("1 lock held")
	b.do(focus("#key"))
	b.press("typ")
	f.hold(t, "b") // the list grows
	b.see("2 locks held")
	b.press("ed")
	require.Equal(t, "typed", is[string](b, "document.activeElement.value"))

	b.do(focus("tbody:last-of-type a"))
	name := is[string](b, "document.activeElement.textContent")
	f.wait(t, name) // it moves to the top
	b.see("1 session waits")
	b.next()
	require.Equal(t, name, is[string](b, "document.activeElement.textContent"))
	require.True(t, is[bool](b, "document.activeElement === document.querySelector('tbody a')"))

	b.do(focus("#pause"), click("#pause"))
	f.hold(t, "c")
	before := is[string](b, "document.querySelector('.asof').textContent")
	other := f.open(t, "/")
	other.see("3 locks held")
	other.next()
	require.Equal(t, before, is[string](b, "document.querySelector('.asof').textContent"))
	b.press(" ")
	b.see("3 locks held")
}

// The first stop of the keyboard leads past the header.
func TestSkip(t *testing.T) {
	f := serving(t)
	b := f.open(t, "/")
	b.press(kb.Tab)
	require.Equal(t, "Skip to the content", is[string](b, "document.activeElement.textContent"))
	require.NotEqual(t, "none", is[string](b, "getComputedStyle(document.activeElement).outlineStyle"))
	require.GreaterOrEqual(t, is[int](b, "Math.round(document.activeElement.getBoundingClientRect().top)"), 0)
	b.press(kb.Enter)
	b.until("document.activeElement.id === 'main'")
}

// tabTo presses the tab key until the focus is on a text.
func (b *tab) tabTo(text string) {
	b.t.Helper()
	for range 30 {
		b.press(kb.Tab)
		if is[string](b, "document.activeElement.textContent.trim()") == text {
			return
		}
	}
	b.t.Fatalf("the tab key does not lead to %q", text)
}

func TestBreakByKeyboard(t *testing.T) {
	f := serving(t, serve.AllowBreak())
	stuck := f.hold(t, "sku:42")
	f.wait(t, "sku:42")
	b := f.open(t, "/")
	b.see("sku:42")
	b.tabTo("sku:42")
	b.press(kb.Enter)
	b.see("Queue")
	session := is[string](b, "document.querySelector('dd').textContent")
	b.tabTo("End session " + session + "…")
	b.press(kb.Enter)
	b.see("End this session?")
	b.everyLook()
	b.tabTo("End session " + session)
	require.NoError(t, stuck.Context().Err(), "nothing is ended before the button is used")
	b.press(kb.Enter)
	b.see("Session " + session + " was ended.")
	eventually.True(t, "the loss", func() bool { return stuck.Context().Err() != nil })
	require.ErrorIs(t, context.Cause(stuck.Context()), txlock.ErrLost)
	b.accessible()
}

func TestLogin(t *testing.T) {
	const token = "0123456789abcdef"
	f := serving(t, serve.Token(token))
	f.hold(t, "sku:42")
	b := f.open(t, "/style.css")
	b.origin = strings.Replace(f.server.URL, "://", "://anybody:"+token+"@", 1) // as who types it
	b.go_("/")
	b.see("sku:42")
	b.next() // what the page loads has the token, too
	b.forgive("a request to http://anybody:")
	b.forgive("/favicon.ico") // a style sheet names no icon
}

func TestWithoutScript(t *testing.T) {
	f := serving(t, serve.AllowBreak())
	stuck := f.hold(t, "sku:42")
	f.wait(t, "sku:42")
	b := f.open(t, "/")
	call(b, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
	b.go_("/")
	b.see("1 lock held or awaited, 1 session waits.")
	b.see("Load it again to see what is new.")
	require.True(t, is[bool](b, "document.getElementById('pause').hidden"))
	b.do(click("tbody a"))
	b.see("Queue")
	b.do(click("#break0"))
	b.see("End this session?")
	b.do(click("button.danger"))
	b.see("was ended.")
	eventually.True(t, "the loss", func() bool { return stuck.Context().Err() != nil })
}

// When the server goes away the page says so, and since when. When it is back, so is the page.
func TestServerAway(t *testing.T) {
	f := serving(t)
	f.hold(t, "sku:42")
	b := f.open(t, "/")
	b.see("sku:42")
	require.NoError(t, database.Kill())
	b.see("This picture is old: the server has not answered since ")
	b.see("sku:42")
	b.everyLook()
	require.Equal(t, "status", is[string](b, "document.getElementById('state').getAttribute('role')"))
	require.NoError(t, database.Restart(background))
	b.until("document.getElementById('state').textContent === ''")
	b.see("The server shows no locks.")
}

// When the program behind the page ends, the page says so. When the network to it falls silent, no
// request fails, and the page says so as well.
func TestProgramAway(t *testing.T) {
	for _, away := range []func(f *fixture) error{
		func(f *fixture) error { f.silent.Store(true); return nil },
		func(f *fixture) error { defer f.server.CloseClientConnections(); return f.server.Listener.Close() },
	} {
		f := serving(t)
		b := f.open(t, "/")
		b.see("The server shows no locks.")
		require.NoError(t, away(f))
		b.see("This page has lost its program since ")
		b.forgive("ERR_")
	}
}

func click(selector string) chromedp.Action[chromedp.Void] {
	return chromedp.Click(chromedp.CSS(selector))
}

func focus(selector string) chromedp.Action[chromedp.Void] {
	return chromedp.Focus(chromedp.CSS(selector))
}
