package terminal

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/term"
)

// Screen is the second screen of a terminal, on which full-screen programs draw.
type Screen struct {
	in, out *os.File
	state   *term.State
	// Quit is closed when the user types ctrl-C, ctrl-D or q, or when the input ends.
	Quit <-chan struct{}
	// Resized gets a value when the size of the terminal changes.
	Resized <-chan os.Signal
}

// Open switches to the second screen and turns the echo of keys off. Close undoes both.
func Open(in, out *os.File) (*Screen, error) {
	state, err := term.MakeRaw(int(in.Fd()))
	if err != nil {
		return nil, fmt.Errorf("prepare the terminal: %w", err)
	}
	// no line wrapping: terminals disagree on the width of some characters
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

// Close restores what was on the terminal before.
func (s *Screen) Close() {
	fmt.Fprint(s.out, "\x1b[?7h\x1b[?25h\x1b[?1049l")
	_ = term.Restore(int(s.in.Fd()), s.state)
}

// Size returns the number of columns and lines.
func (s *Screen) Size() (width, height int) {
	width, height = size(s.out)
	if width == 0 || height == 0 {
		return 80, 24
	}
	return width, height
}

// Draw shows as many lines as fit. It overwrites the old lines, because clearing them would
// flicker.
func (s *Screen) Draw(lines []string) {
	_, height := s.Size()
	fmt.Fprint(s.out, "\x1b[H"+strings.Join(lines[:min(len(lines), height)], "\x1b[K\r\n")+"\x1b[K\x1b[J")
}
