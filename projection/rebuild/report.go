package rebuild

import (
	"fmt"
	"time"
)

// Report is what a rebuild found and did. Durations are in seconds.
type Report struct {
	ID     int64  `json:"id"`
	Kind   Kind   `json:"kind"`
	Topic  string `json:"topic"`
	Group  string `json:"group"`
	Status Status `json:"status"`
	DryRun bool   `json:"dry_run"`

	Partitions []Partition `json:"partitions"`
	Records    int64       `json:"records"` // offsets passed
	Seconds    float64     `json:"seconds"`
	Filling    float64     `json:"filling_seconds"` // until the end that was seen at the start
	Rate       float64     `json:"records_per_second"`

	Orders           int64        `json:"orders"` // in the rebuilt tables
	DifferingOrders  int64        `json:"differing_orders"`
	DifferingLetters int64        `json:"differing_letters"` // of orders that do not differ otherwise, or of none
	Causes           []CauseCount `json:"orders_by_cause"`
	Differences      []Difference `json:"differences"` // the first of them
	// Beyond are orders of partitions of which the live tables held nothing, and which the rebuild read to their ends.
	Beyond int64 `json:"orders_beyond"`

	Generation    int64    `json:"generation,omitempty"`
	Attempts      int      `json:"attempts"`               // to exchange the tables
	WritersWaited float64  `json:"writers_waited_seconds"` // the longest that members were made to wait
	ReadersWaited float64  `json:"readers_waited_seconds"` // the longest that an exchange kept the tables locked
	Notes         []string `json:"notes,omitempty"`
}

// Partition is how far a partition was read.
type Partition struct {
	Partition int32 `json:"kafka_partition"`
	LogStart  int64 `json:"log_start"`
	LogEnd    int64 `json:"log_end"` // at the start
	Next      int64 `json:"next_offset"`
	// Beyond says that the live tables held nothing of the partition, so that it was read to its end.
	Beyond bool `json:"beyond_watermark,omitempty"`
}

// Cause says how an order differs. The names are those of verify.
type Cause string

// The causes. Expected is what the rebuild has, found what the live tables have.
const (
	MissingRow  Cause = "missing_row"
	NoSuchOrder Cause = "no_such_order"
	Behind      Cause = "behind"
	Ahead       Cause = "ahead"
	Column      Cause = "column"
	Ledger      Cause = "ledger"
	Parked      Cause = "parked"
	DeadLetter  Cause = "dead_letter"
)

// CauseCount counts the differences of a cause.
type CauseCount struct {
	Cause Cause `json:"cause"`
	Count int64 `json:"count"`
}

// Difference is an order, or a dead letter, that is not in the live tables as the rebuild has it.
type Difference struct {
	OrderID string `json:"order_id"` // empty for a letter that names none
	Cause   Cause  `json:"cause"`
	Detail  string `json:"detail,omitempty"`
}

func (d Difference) String() string {
	if d.Detail == "" {
		return string(d.Cause)
	}
	return string(d.Cause) + ": " + d.Detail
}

// Differing is how many orders and letters differ.
func (r *Report) Differing() int64 { return r.DifferingOrders + r.DifferingLetters }

// DifferenceError says that more differs than may, and that the tables were not exchanged.
type DifferenceError struct {
	Orders, Letters, Max int64
}

func (e *DifferenceError) Error() string {
	return fmt.Sprintf("%d orders and %d dead letters differ, and no more than %d may: the tables were not exchanged, and the rebuilt ones are dropped",
		e.Orders, e.Letters, max(0, e.Max))
}

// Hint says what the operator can do.
func (e *DifferenceError) Hint() string {
	return fmt.Sprintf("look at the differences, and at verify; if the rebuilt tables are right: rebuild --max-diff %d", e.Orders+e.Letters)
}

// BusyError says that another rebuild is running.
type BusyError struct {
	ID      int64
	Actor   string
	Started time.Time
}

func (e *BusyError) Error() string {
	if e.ID == 0 {
		return "another rebuild is running on this database"
	}
	return fmt.Sprintf("rebuild %d is running on this database since %s, started by %s", e.ID, e.Started.UTC().Format(time.RFC3339), e.Actor)
}

// Hint says what the operator can do.
func (e *BusyError) Hint() string {
	return "orderprojector rebuild status shows it, orderprojector rebuild abort ends it"
}

// AbortedError says that somebody asked the rebuild to stop.
type AbortedError struct{ Actor, Comment string }

func (e *AbortedError) Error() string {
	return fmt.Sprintf("aborted by %s (%s): the live tables are as they were", e.Actor, e.Comment)
}

// GaveUpError says that the tables could not be exchanged in time, because others use them.
type GaveUpError struct {
	After time.Duration
	Err   error // of the last attempt
}

func (e *GaveUpError) Error() string {
	return fmt.Sprintf("the tables could not be exchanged within %s, and the rebuilt ones are dropped: %v", e.After, e.Err)
}
func (e *GaveUpError) Unwrap() error { return e.Err }

// Hint says what the operator can do.
func (e *GaveUpError) Hint() string {
	return "end the transactions that keep the tables, or wait longer: --give-up-after for all attempts, --lock-timeout for each (readers may wait as long)"
}
