package reference

import (
	"slices"
	"strings"
	"time"

	"github.com/orderprojector/orderprojector/projection"
)

// Result is what a projection of the folded records must hold.
type Result struct {
	// Orders are sorted bytewise by ID: every order with an applied event, and
	// with version 0 those that wait for their first one.
	Orders []Order
	// DeadLetters are sorted by topic, partition and offset.
	DeadLetters []DeadLetter
	// Parked are the events that still wait, sorted by order, version, event ID
	// and digest.
	Parked []ParkedEvent
	// Partitions holds the accounts of every log that was folded.
	Partitions map[projection.TopicPartition]Partition
	// Decided holds the orders about which operators decided something.
	Decided map[string]bool
}

// Order is one order's expected row with its ledger.
type Order struct {
	OrderID           string
	CustomerID        string
	State             string
	Version           int64
	Currency          string
	TotalMinor        int64
	PaidMinor         int64
	RefundedMinor     int64
	CreatedAt         time.Time
	UpdatedAt         time.Time
	LastEventID       string
	Status            string // ok, waiting or blocked
	WaitingForVersion int64  // 0 when Status is ok
	At                Coordinates
	Ledger            []Entry // Ledger[i] is version i+1
}

// Entry is one applied event of an order.
type Entry struct {
	Version    int64
	EventID    string
	Type       string // as written
	State      string // the order's state after it
	OccurredAt time.Time
	Digest     Digest // of the record's value
	Partition  int32
	Offset     int64
}

// Coordinates name one record.
type Coordinates struct {
	Topic     string
	Partition int32
	Offset    int64
}

// ParkedEvent is an event that waits for a missing version.
type ParkedEvent struct {
	OrderID string
	Version int64
	EventID string
	Digest  Digest
	At      Coordinates // of its first delivery
}

// The states of a dead letter that no operator touched.
const (
	Open       = "open"
	Superseded = "superseded"
)

// DeadLetter is a refused record. Zero OrderID, Version and EventID stand for
// NULL: they could not be read.
type DeadLetter struct {
	Log     projection.TopicPartition
	Offset  int64
	Reason  projection.Outcome
	OrderID string
	Version int64
	EventID string
	Blocks  bool // its version was still to come, and waits for this letter
	Status  string
}

// Partition is the account of one log.
type Partition struct {
	NextOffset int64
	Counts     projection.Counts // first decisions
}

// Order returns the order with that ID, or nil.
func (r *Result) Order(id string) *Order {
	i, found := slices.BinarySearchFunc(r.Orders, id, func(o Order, id string) int {
		return strings.Compare(o.OrderID, id)
	})
	if !found {
		return nil
	}
	return &r.Orders[i]
}

// Counts adds up the partitions.
func (r *Result) Counts() projection.Counts {
	var sum projection.Counts
	for _, p := range r.Partitions {
		sum.Add(p.Counts)
	}
	return sum
}
