package projection

import (
	"fmt"
	"time"
)

// Trouble is what holds a partition up while it is tried again and again.
type Trouble struct {
	TopicPartition
	What     string // is tried
	Class    Failure
	Err      error // of the last attempt
	Since    time.Time
	Attempts int    // that failed
	Advice   string // what an operator can do; empty where nothing is known
}

func (t *Trouble) Error() string {
	msg := fmt.Sprintf("%s-%d: %s has failed %d times in %s (%s): %v", t.Topic, t.Partition, t.What, t.Attempts,
		time.Since(t.Since).Round(time.Second), t.Class, t.Err)
	if t.Advice != "" {
		msg += " (" + t.Advice + ")"
	}
	return msg
}

func (t *Trouble) Unwrap() error { return t.Err }

// Hint says what an operator can do, "" where nothing is known.
func (t *Trouble) Hint() string { return t.Advice }

// Troubles returns what holds partitions up now, in the order of the partitions. It is safe for concurrent use.
func (p *Projector) Troubles() []*Trouble { return p.retrier.Troubles() }
