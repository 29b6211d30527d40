package terminal

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/term"
)

// Screen is a terminal's second screen, which full-screen programs draw on.
type Screen struct {
	in, out *os.File
	state   *term.State
	// Quit is closed when ctrl-C, ctrl-D or q is typed, or the input ends.
	Quit <-chan struct{}
	// Resized gets a value when the terminal has another size.
	Resized <-chan os.Signal
}

// Open switches to the second screen, and to keys that are not echoed. Close undoes that.
func Open(in, out *os.File) (*Screen, error) {
	state, err := term.MakeRaw(int(in.Fd()))
	if err != nil {
		return nil, fmt.Errorf("prepare the terminal: %w", err)
	}
	// terminals differ in how wide they take a character for: what is too wide must not begin a new
	// line
	fmt.Fprint(out, "\x1b[?1049h\x1b[?25l\x1b[?7l")
	quit := make(chan struct{})
	go func() {
		defer close(quit)
		key := make([]byte, 1)
		for {
			n, err := in.Read(key)
			if err != nil || n == 1 && strings.IndexByte("\x03\x04q", key[0]) >= 0 {
				return
			}
		}
	}()
	return &Screen{in: in, out: out, state: state, Quit: quit, Resized: resized()}, nil
}

// Close brings back what was on the terminal before.
func (s *Screen) Close() {
	fmt.Fprint(s.out, "\x1b[?7h\x1b[?25h\x1b[?1049l")
	_ = term.Restore(int(s.in.Fd()), s.state)
}

// Size is how many columns and lines there are.
func (s *Screen) Size() (width, height int) {
	width, height = size(s.out)
	if width == 0 || height == 0 {
		return 80, 24
	}
	return width, height
}

// Draw shows lines, as many as there is room for. It overwrites the old ones rather than to clear
// them, which would flicker.
func (s *Screen) Draw(lines []string) {
	_, height := s.Size()
	fmt.Fprint(s.out, "\x1b[H"+strings.Join(lines[:min(len(lines), height)], "\x1b[K\r\n")+"\x1b[K\x1b[J")
}
