package spool

// EventKind is what happened. The set is closed.
type EventKind string

// The kinds of events.
const (
	EventDead       EventKind = "dead"        // a delivery was set aside; Reason is a DeadReason
	EventDropped    EventKind = "dropped"     // a delivery left undelivered; Reason is a DropReason
	EventDiskFailed EventKind = "disk_failed" // the first of a row of failed operations; Err says which
	EventDiskOK     EventKind = "disk_ok"     // the disk works again
	EventDown       EventKind = "down"        // a hook's receiver cannot be reached
	EventUp         EventKind = "up"          // it can again
	EventDamage     EventKind = "damage"      // damaged stretches were found; Count of them
	EventSetAside   EventKind = "set_aside"   // a damaged file was moved to the directory "aside"
)

// Event is something an operator may want in a log. It holds no byte of a
// sender and no secret: Hook is a configured name, ID the spool's own number.
type Event struct {
	Kind   EventKind
	Hook   string
	ID     string
	Reason string
	Count  int
	Err    error
}

func (s *Spool) tellLocked(e Event) { s.events = append(s.events, e) }
