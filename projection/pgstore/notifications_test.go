package pgstore_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/orderprojector/orderprojector/domain/notification"
	"github.com/orderprojector/orderprojector/projection/notifications"
	"github.com/orderprojector/orderprojector/projection/pgstore"
)

func openNotifications(t *testing.T, events ...string) (pgstore.NotificationStore, *pgxpool.Pool) {
	t.Helper()
	store, pool := openStore(t)
	queue := pgstore.NotificationStore{Store: store}
	var all []notifications.Notification
	for _, id := range events {
		all = append(all, notifications.Notification{
			Message: notifications.Message{Key: id, Body: "{}"}, EventID: id, OrderID: "o-" + id, State: notification.Pending, TopicPartition: testLog,
		})
	}
	if err := queue.InTx(t.Context(), func(ctx context.Context, tx notifications.Tx) error {
		added, err := tx.AddNotifications(ctx, all)
		if err == nil && len(added) != len(events) {
			err = fmt.Errorf("%d notifications were added", len(added))
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return queue, pool
}

func claimOne(t *testing.T, q pgstore.NotificationStore, pool *pgxpool.Pool, eventID string, lease time.Duration) *notifications.Claimed {
	t.Helper()
	if _, err := pool.Exec(t.Context(), `UPDATE notifications SET due_at = CASE WHEN event_id = $1 THEN now() - interval '1 hour' ELSE now() + interval '1 hour' END`, eventID); err != nil {
		t.Fatal(err)
	}
	claimed, err := q.Claim(t.Context(), "w", 5, lease)
	if err != nil || len(claimed) != 1 || claimed[0].EventID != eventID {
		t.Fatalf("claimed %v, %v", claimed, err)
	}
	return claimed[0]
}

func finish(t *testing.T, q pgstore.NotificationStore, c *notifications.Claimed, r notifications.Result, want notification.State) {
	t.Helper()
	if got, err := q.Finish(t.Context(), c, r); err != nil || got != want {
		t.Fatalf("%s: %q, %v; want %q", c.EventID, got, err, want)
	}
}

// Failures of a notification count only when another one was sent since the failure before; sixteen of them are too many.
func TestFailuresCountWhileOthersAreSent(t *testing.T) {
	t.Parallel()
	var events []string
	for i := range notifications.MaxFailures {
		events = append(events, fmt.Sprintf("good-%d", i))
	}
	q, pool := openNotifications(t, append(events, "poison")...)
	failed := notifications.Result{State: notification.Pending, Failed: true, Status: 500, Error: "no"}
	for i := range notifications.MaxFailures {
		for range 3 { // the receiver is away: nobody gets through
			finish(t, q, claimOne(t, q, pool, "poison", time.Minute), failed, notification.Pending)
		}
		if i > 0 && claimOne(t, q, pool, "poison", time.Minute).Failures != i {
			t.Fatalf("failures after %d of others were sent", i)
		}
		finish(t, q, claimOne(t, q, pool, events[i], time.Minute), notifications.Result{State: notification.Sent}, notification.Sent)
		if i == notifications.MaxFailures-1 {
			finish(t, q, claimOne(t, q, pool, "poison", time.Minute), failed, notification.Failed)
			return
		}
		finish(t, q, claimOne(t, q, pool, "poison", time.Minute), failed, notification.Pending)
	}
}

// A claim that ran out is somebody else's, and its late finisher writes nothing.
func TestLateFinisher(t *testing.T) {
	t.Parallel()
	q, pool := openNotifications(t, "a")
	late := claimOne(t, q, pool, "a", time.Minute)
	if late.State != notification.Sending || late.Attempts != 1 {
		t.Errorf("%+v", late)
	}
	if claimed, err := q.Claim(t.Context(), "w", 5, time.Minute); err != nil || len(claimed) != 0 {
		t.Fatalf("a claimed notification is claimed: %v, %v", claimed, err)
	}
	heir := claimOne(t, q, pool, "a", time.Minute)
	if heir.State != notification.Unknown || heir.Attempts != 1 {
		t.Errorf("what was found sending: %+v", heir)
	}
	if mine, err := q.Begin(t.Context(), late, time.Minute); mine || err != nil {
		t.Errorf("the late one begins: %t, %v", mine, err)
	}
	if mine, err := q.Begin(t.Context(), heir, time.Minute); !mine || err != nil {
		t.Errorf("the heir begins: %t, %v", mine, err)
	}
	finish(t, q, late, notifications.Result{State: notification.Failed}, "")
	finish(t, q, heir, notifications.Result{State: notification.Sent}, notification.Sent)
	finish(t, q, heir, notifications.Result{State: notification.Failed}, "")
	var state string
	var attempts int
	if err := pool.QueryRow(t.Context(), `SELECT state, attempts FROM notifications`).Scan(&state, &attempts); err != nil || state != "sent" || attempts != 2 {
		t.Errorf("%s after %d attempts, %v", state, attempts, err)
	}
}
