package servers

import (
	"context"
	"fmt"
)

// Kill kills the server with all its processes, and returns when they are gone. What a database had
// committed is there after Restart.
func (s *Server) Kill() error { return s.toProcess((*process).kill) }

// Pause stops all processes of the server until Continue: it keeps its connections, and does not
// answer.
func (s *Server) Pause() error { return s.toProcess((*process).pause) }

// Continue lets a paused server go on.
func (s *Server) Continue() error { return s.toProcess((*process).proceed) }

// Restart starts the server again, with its old address and data, and returns when it answers. A
// running server is ended first, and its connections with it.
func (s *Server) Restart(ctx context.Context) error {
	own, err := s.private()
	if err != nil {
		return err
	}
	if err := own.restart(ctx, s.answering); err != nil {
		return fmt.Errorf("restart %s: %w", s.Name, err)
	}
	return nil
}

// running starts the server, unless it runs.
func (s *Server) running(ctx context.Context) error {
	if s.runs() {
		return nil
	}
	return s.Restart(ctx)
}

func (s *Server) runs() bool { return s.toProcess(func(*process) error { return nil }) == nil }

func (s *Server) toProcess(do func(*process) error) error {
	own, err := s.private()
	if err != nil {
		return err
	}
	if err := own.whileRunning(do); err != nil {
		return fmt.Errorf("%s: %w", s.Name, err)
	}
	return nil
}

func (s *Server) private() (*instance, error) {
	if s.own == nil {
		return nil, fmt.Errorf("%s (%s) is no private instance: only such are handled so", s.Name, s.Origin)
	}
	return s.own, nil
}
