package notifications

import (
	"context"
	"time"

	"github.com/orderprojector/orderprojector/domain/notification"
	"github.com/orderprojector/orderprojector/projection"
	"github.com/orderprojector/orderprojector/projection/effects"
)

// Tx is one transaction of the consumer.
type Tx interface {
	effects.Tx
	// AddNotifications writes notifications, and returns the event IDs of those that were added: there is one per event.
	AddNotifications(ctx context.Context, notifications []Notification) (added []string, err error)
}

// Notification is a notification when it is written.
type Notification struct {
	Message
	EventID string
	OrderID string
	State   notification.State
	projection.TopicPartition
	Offset int64
}

// Queue is where a Sender finds what is to be sent. It is safe for concurrent use; each call is one transaction.
type Queue interface {
	// Claim claims up to limit notifications that are due, for as long as lease: pending ones are sending then, the
	// others unknown. A claim that runs out can be claimed by anybody.
	Claim(ctx context.Context, worker string, limit int, lease time.Duration) ([]*Claimed, error)
	// Begin makes a claimed notification sending, and prolongs its claim. It returns false when the claim is somebody else's by now.
	Begin(ctx context.Context, c *Claimed, lease time.Duration) (bool, error)
	// Finish writes what came of a claimed notification, and ends the claim. It returns where the notification stands
	// then, "" when the claim is somebody else's by now and nothing was written.
	Finish(ctx context.Context, c *Claimed, r Result) (notification.State, error)
}

// Claimed is a notification that a worker has claimed.
type Claimed struct {
	Message
	EventID  string
	OrderID  string
	State    notification.State // sending or unknown
	Attempts int                // calls of the receiver that were begun, this one included when it is sending
	Failures int                // those that count
	Claim    int64              // number of the claim: nobody else has it
}

// Result is what came of a claimed notification.
type Result struct {
	State notification.State
	// Failed says that the attempt failed. It counts when another notification was sent since
	// the failure before; when MaxFailures of them count, what would be pending has failed.
	Failed bool
	// Unsent says that the receiver was not called after all.
	Unsent bool
	Status int    // of the receiver's answer, 0 for none
	Error  string // "" for none
	Pause  time.Duration
	// Waits says that it is not due again until an operator says so.
	Waits bool
}

// MaxFailures is how many failures of a notification count before it has failed.
const MaxFailures = effects.MaxFailures
