package servers

import (
	"context"
	"fmt"
)

// Kill kills the server and all its processes, and returns when they are gone. What was committed
// is there after Restart; of Redis, what it had saved by then.
func (s *Server) Kill() error { return s.toProcess((*process).kill) }

// Pause stops all processes of the server until Continue: it keeps its connections, but does not
// answer.
func (s *Server) Pause() error { return s.toProcess((*process).pause) }

// Continue lets a paused server go on.
func (s *Server) Continue() error { return s.toProcess((*process).proceed) }

// Restart starts the server again, on its old address and data, and returns when it answers. A
// server that runs is ended first, without regard to its connections.
func (s *Server) Restart(ctx context.Context) error {
	own, err := s.private()
	if err != nil {
		return err
	}
	if err := own.restart(ctx, s.Kind.answers(s.DSN)); err != nil {
		return fmt.Errorf("restart %s: %w", s.Name, err)
	}
	return nil
}

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
