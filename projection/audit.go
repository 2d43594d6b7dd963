package projection

// AuditEntry is one operator action: one row of the audit log, written in the
// transaction that carries the action out.
type AuditEntry struct {
	Actor   string // who
	Action  string // what: the command, such as "dlq.discard"
	Target  string // to what, such as "dead_letter 17" or "order o-1"
	Comment string // why
	// Before and After are what was changed, as JSON objects; nil for nothing.
	Before, After any
}

// By says who does something, and why.
type By struct {
	Actor   string
	Comment string
}
