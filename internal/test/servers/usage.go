package servers

import "time"

// CPU is the processor time of the running processes and threads of the server. The difference of
// two calls is the time used in between, if no thread has ended.
func (s *Server) CPU() (used time.Duration, err error) {
	err = s.toProcess(func(p *process) (err error) {
		used, err = usedBy(p.command.Process)
		return err
	})
	return used, err
}
