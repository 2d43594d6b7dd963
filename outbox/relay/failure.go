package relay

// Class is the class of what keeps messages from being published: a metric label.
type Class string

// The classes.
const (
	TopicMissing  Class = "topic_missing"
	Forbidden     Class = "forbidden"
	Broker        Class = "broker"         // away, too slow, or not able to
	Database      Class = "database"       // away, or busy: it heals by itself
	DatabaseSetup Class = "database_setup" // a missing grant or table: somebody has to do something
)

// Classes lists every class.
func Classes() []Class { return []Class{TopicMissing, Forbidden, Broker, Database, DatabaseSetup} }

// needsSomebody reports classes that waiting does not heal.
func (c Class) needsSomebody() bool { return c == TopicMissing || c == Forbidden || c == DatabaseSetup }

// Failure is what keeps messages from being published. It is about the
// infrastructure, never about a message: everything is tried again until it heals.
type Failure struct {
	Class  Class
	Err    error
	Advice string
}

func (f *Failure) Error() string { return f.Err.Error() }
func (f *Failure) Unwrap() error { return f.Err }

// Hint says what the operator can do.
func (f *Failure) Hint() string { return f.Advice }

// Reason says why a message can never be published as it is.
type Reason string

// The reasons.
const (
	TooLarge Reason = "too_large" // the topic takes no record of that size
	Invalid  Reason = "invalid"   // no consumer could read it
	Refused  Reason = "refused"   // the broker refuses this record
)

// Reasons lists every reason.
func Reasons() []Reason { return []Reason{TooLarge, Invalid, Refused} }

// Fault says that records were not acknowledged while the broker that leads their partition answered: an empty request
// for that partition, on a new connection, got through behind them.
type Fault struct {
	Closed bool // the broker, or something before it, closed the connection at them
	Err    error
}

func (f *Fault) Error() string { return f.Err.Error() }
func (f *Fault) Unwrap() error { return f.Err }

// Refusal says that one message can never be published as it is.
type Refusal struct {
	Reason Reason
	Err    error
}

func (r *Refusal) Error() string { return string(r.Reason) + ": " + r.Err.Error() }
func (r *Refusal) Unwrap() error { return r.Err }
