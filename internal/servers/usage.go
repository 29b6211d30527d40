package servers

import "time"

// CPU is the processor time that those processes and threads of the server used that live: the
// difference of two calls is what was used in between, as long as none has ended.
func (s *Server) CPU() (used time.Duration, err error) {
	err = s.toProcess(func(p *process) (err error) {
		used, err = usedBy(p.command.Process)
		return err
	})
	return used, err
}
