package dialects

// Legacy is a lock of the server's that belongs to no row: programs held it before they came to
// txlock. Clients agree on its Name.
type Legacy struct {
	System string // of the databases that have such locks, as Driver.System names it
	Name   string // tells it from others of that system, and is for people
	Err    error  // why there is no such lock; nil: there is
}
