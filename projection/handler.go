package projection

import (
	"context"
	"fmt"
)

// NoOffset stands for an offset that does not exist, such as the committed
// offset of a group that never committed.
const NoOffset int64 = -1

// Assignment is what the broker says of a partition when a member gets it.
type Assignment struct {
	TopicPartition
	Group     string
	Committed int64 // the group's committed offset (next to read), or NoOffset
	LogStart  int64 // first offset that still exists
	LogEnd    int64 // last stable offset: the next one a committed record can get
}

// Start says where a member begins with a partition.
type Start struct {
	// Offset is the next offset to read.
	Offset int64
	// Watermark is the next offset as the database has it: everything below was read once.
	Watermark int64
	// CommitAbove is the group's committed offset as far as it is to be
	// believed: positions at or below it are not committed, because a committed offset
	// never moves backwards by itself.
	CommitAbove int64
}

// Handler receives the partitions of a consumer-group member.
type Handler interface {
	// Assign prepares a partition and says where to start. It retries
	// infrastructure failures until ctx ends; the error is then ctx's cause,
	// or a *HaltError when the partition must not be read.
	Assign(ctx context.Context, a Assignment) (PartitionHandler, Start, error)
}

// PartitionHandler applies the records of one partition, in order. It is used
// by one goroutine at a time.
type PartitionHandler interface {
	// Handle makes every record durable in one of its places before it
	// returns nil. Infrastructure failures are retried inside, without end,
	// until ctx ends; records before the failing one may then be durable.
	// The slice is the caller's again when Handle returns; the records' bytes may be kept.
	// A *RewindError asks the caller to assign the partition anew (with the
	// committed offset and log start as they are then) and to read from where that
	// says; a *HaltError to stop this partition and leave the others running.
	Handle(ctx context.Context, records []Record) error
	// Check compares the stored watermark with the position while the
	// partition is idle: a database that lost commits is noticed although no record
	// arrives. It returns nil, a *RewindError, or the infrastructure failure
	// of this one attempt.
	Check(ctx context.Context) error
	// Skip records that offsets from the position up to `to` no longer exist and continues
	// there (--on-data-loss=continue). Retries like Handle.
	Skip(ctx context.Context, to int64) error
	// Close releases what is remembered of the partition. It is called once
	// the partition is revoked, lost, or about to be assigned anew.
	Close()
}

// RewindError says that the database is behind the member's position: the
// partition is to be assigned anew.
type RewindError struct {
	To     int64 // the next offset to read as the database sees it, or NoOffset when it does not know
	Reason string
}

func (e *RewindError) Error() string {
	return fmt.Sprintf("rewinding to offset %d: %s", e.To, e.Reason)
}

// HaltError says that a partition cannot go on without an operator.
type HaltError struct {
	Reason string
	Hint   string // what the operator can do
}

func (e *HaltError) Error() string {
	if e.Hint == "" {
		return "partition halted: " + e.Reason
	}
	return "partition halted: " + e.Reason + " (" + e.Hint + ")"
}

// RecordReader reads records again, to compare events with the ones that the
// ledger remembers.
type RecordReader interface {
	// ReadRecords calls found for the records at exactly these offsets of a
	// partition, which ascend, in that order. One that the log no longer holds (or never did) is left out. With
	// an error, some may have been found. An *UnreadableError names records that the log holds and nobody can
	// read; no record behind them was looked at.
	ReadRecords(ctx context.Context, tp TopicPartition, offsets []int64, found func(Record)) error
}

// UnreadableError says that a batch of the log cannot be read: its bytes are
// damaged, or it is larger than a reader accepts.
type UnreadableError struct {
	TopicPartition
	First, Next int64 // the batch's first offset, and the first offset behind the batch
	Err         error
}

func (e *UnreadableError) Error() string {
	return fmt.Sprintf("offsets %d to %d of %s cannot be read: %v", e.First, e.Next-1, e.TopicPartition, e.Err)
}

func (e *UnreadableError) Unwrap() error { return e.Err }
