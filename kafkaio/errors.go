package kafkaio

import (
	"errors"
	"fmt"
	"time"
)

var (
	// ErrInstanceFenced means that another process joined the group with the
	// same instance ID and took this member's place.
	ErrInstanceFenced = errors.New("another member of the group uses the same instance ID")
	// ErrDataLoss means that records were removed from the log before they
	// were read, and the policy is to exit.
	ErrDataLoss = errors.New("records were removed from the log before they were read")
	// ErrCompactedTopic means that the topic's cleanup policy compacts it.
	ErrCompactedTopic = errors.New("the topic is compacted")
	// ErrHandlerPanic means that the handler panicked.
	ErrHandlerPanic = errors.New("the handler panicked")

	// errTopicRecreated and errTopicMissing end a session; the next one looks
	// the topic up again.
	errTopicRecreated = errors.New("the topic was deleted and created again")
	errTopicMissing   = errors.New("the topic does not exist")
	errClientClosed   = errors.New("the kafka client closed")

	errStopping = errors.New("the partition is given up")
	errReadable = errors.New("the records that halted the partition can be read again")
)

// fatalError ends Run: another session would meet the same.
type fatalError struct{ err error }

func (e *fatalError) Error() string { return e.err.Error() }
func (e *fatalError) Unwrap() error { return e.err }

func fatalf(format string, args ...any) error {
	return &fatalError{fmt.Errorf(format, args...)}
}

func isFatal(err error) bool {
	var f *fatalError
	return errors.As(err, &f)
}

// A StalledError says that a partition has lag and makes no progress.
type StalledError struct {
	Topic     string
	Partition int32
	Lag       int64
	Since     time.Duration
	LastError string
}

func (e *StalledError) Error() string {
	msg := fmt.Sprintf("%s-%d: no progress for %s with %d records waiting", e.Topic, e.Partition, e.Since.Round(time.Second), e.Lag)
	if e.LastError != "" {
		msg += ": " + e.LastError
	}
	return msg
}
