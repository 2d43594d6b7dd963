package verify

import (
	"fmt"
	"time"
)

// Cause names why an order differs from the fold.
type Cause string

// The causes.
const (
	MissingRow    Cause = "missing_row"   // the topic has applied events, the database no row
	UnexpectedRow Cause = "no_such_order" // the row's events are nowhere in the topic
	Behind        Cause = "behind"        // the row lacks versions that the topic has
	Ahead         Cause = "ahead"         // the row has versions that the topic does not give
	Column        Cause = "column"        // a column differs
	Ledger        Cause = "ledger"        // a ledger entry differs
	Parked        Cause = "parked"        // events wait that should not, or do not that should
	Blocked       Cause = "blocked"       // a dead letter blocks that should not, or does not that should
	DeadLetter    Cause = "dead_letter"   // a dead letter is missing, left over, or another one
	Removed       Cause = "removed"       // retention removed the beginning: it cannot be compared
	// The rest only explains: it comes with another cause.
	Decided           Cause = "decided"            // operators decided about the order
	SeveralPartitions Cause = "several_partitions" // which of two events came first is not in the topic
)

// Finding is one cause with what it is about.
type Finding struct {
	Cause    Cause  `json:"cause"`
	Column   string `json:"column,omitempty"`
	Version  int64  `json:"version,omitempty"` // of the ledger entry, event or letter
	Expected string `json:"expected,omitempty"`
	Found    string `json:"found,omitempty"`
	Detail   string `json:"detail,omitempty"`
}

func (f Finding) String() string {
	text := string(f.Cause)
	switch {
	case f.Column != "" && f.Version > 0:
		text += fmt.Sprintf(" version %d, %s: expected %s, found %s", f.Version, f.Column, orNone(f.Expected), orNone(f.Found))
	case f.Column != "":
		text += fmt.Sprintf(" %s: expected %s, found %s", f.Column, orNone(f.Expected), orNone(f.Found))
	}
	if f.Detail != "" {
		text += ": " + f.Detail
	}
	return text
}

func orNone(s string) string {
	if s == "" {
		return "(none)"
	}
	return s
}

// Difference is one order that differs.
type Difference struct {
	OrderID  string    `json:"order_id"`
	Findings []Finding `json:"causes"`
}

func (d Difference) removed() bool {
	for _, f := range d.Findings {
		if f.Cause == Removed {
			return true
		}
	}
	return false
}

// Partition is what was compared of one partition.
type Partition struct {
	Partition  int32 `json:"kafka_partition"`
	LogStart   int64 `json:"log_start"`
	Watermark  int64 `json:"watermark"` // compared below it
	LogEnd     int64 `json:"log_end"`
	NotYet     int64 `json:"not_yet_projected"` // offsets between watermark and end: no difference
	Unassigned bool  `json:"without_watermark,omitempty"`
}

// Account is a count of a watermark that differs.
type Account struct {
	Partition int32  `json:"kafka_partition"`
	Column    string `json:"column"`
	Expected  int64  `json:"expected"`
	Found     int64  `json:"found"`
}

// SharedEventID is an event ID that several orders use.
type SharedEventID struct {
	EventID string   `json:"event_id"`
	Orders  []string `json:"orders"`
}

// Report is the result.
type Report struct {
	Topic   string `json:"topic"`
	TopicID string `json:"topic_id"`
	Group   string `json:"group"`
	Scope   string `json:"scope"` // whole, sample or orders
	Seed    uint64 `json:"seed,omitempty"`

	Partitions []Partition `json:"partitions"`
	Records    int64       `json:"offsets_read"`
	Seconds    float64     `json:"seconds"`

	Orders       int `json:"orders_compared"` // on either side
	Equal        int `json:"orders_equal"`
	Differing    int `json:"orders_differing"`
	Unverifiable int `json:"orders_unverifiable"` // the beginning is removed
	// Waiting and Blocked are orders that are behind the topic in both: they wait for a missing version, or for a dead letter.
	Waiting int `json:"orders_waiting"`
	Blocked int `json:"orders_blocked"`
	// Held are orders with held records, or with letters that were held records. Their rows are behind the topic, and are not compared.
	Held int `json:"orders_held,omitempty"`

	Causes map[Cause]int `json:"orders_by_cause"`
	// Differences are the first of them, by order ID.
	Differences []Difference `json:"differences"`
	// Letters are dead letters that name no order and differ.
	Letters []Finding `json:"letters,omitempty"`
	// Accounts are counts of watermarks that differ.
	Accounts []Account       `json:"accounts,omitempty"`
	EventIDs []SharedEventID `json:"shared_event_ids,omitempty"`
	// Notes say what could not be compared, and why.
	Notes []string `json:"notes,omitempty"`
}

// Same reports whether rows and fold are equal, as far as the topic reaches.
func (r *Report) Same() bool { return r.Differing == 0 && len(r.Letters) == 0 && len(r.Accounts) == 0 }

func (r *Report) finish(began time.Time) { r.Seconds = time.Since(began).Seconds() }
