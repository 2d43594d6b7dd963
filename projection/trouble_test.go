package projection_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orderprojector/orderprojector/projection"
	"github.com/orderprojector/orderprojector/projection/projectiontest"
)

// lockedOut is a store that lacks a grant, until it is given.
type lockedOut struct {
	*projectiontest.Memory
	refuses atomic.Bool
}

var errNoGrant = errors.New("permission denied")

func (s *lockedOut) InTx(ctx context.Context, work func(context.Context, projection.Tx) error) error {
	if s.refuses.Load() {
		return errNoGrant
	}
	return s.Memory.InTx(ctx, work)
}

func (s *lockedOut) Classify(err error) projection.Failure {
	if errors.Is(err, errNoGrant) {
		return projection.Unhealthy
	}
	return s.Memory.Classify(err)
}

// What holds a partition up is known with its advice for as long as it does, and no longer.
func TestTroublesLastAsLongAsTheyDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &lockedOut{Memory: projectiontest.NewMemory()}
		projector, err := projection.NewProjector(projection.ProjectorConfig{
			Group: "g", Store: store, Older: noRecords{}, Hint: func(error) string { return "grant it" },
		})
		if err != nil {
			t.Fatal(err)
		}
		tp := projection.TopicPartition{Topic: "orders", TopicID: projection.TopicID{1}, Partition: 3}
		handler, _, err := projector.Assign(t.Context(), projection.Assignment{TopicPartition: tp, Group: "g", Committed: projection.NoOffset})
		if err != nil {
			t.Fatal(err)
		}
		handle := func(ctx context.Context, offset int64) <-chan error {
			done := make(chan error, 1)
			go func() { done <- handler.Handle(ctx, []projection.Record{{TopicPartition: tp, Offset: offset}}) }()
			return done
		}

		store.refuses.Store(true)
		done := handle(t.Context(), 0)
		time.Sleep(time.Minute)
		found := projector.Troubles()
		if len(found) != 1 {
			t.Fatalf("troubles: %v", found)
		}
		it := found[0]
		if it.TopicPartition != tp || it.Class != projection.Unhealthy || !errors.Is(it, errNoGrant) || it.Attempts < 5 ||
			it.Hint() != "grant it" || !strings.HasPrefix(it.Error(), "orders-3: applying offsets 0 to 0 has failed ") {
			t.Errorf("%v, class %v, %d attempts, hint %q", it, it.Class, it.Attempts, it.Hint())
		}
		store.refuses.Store(false)
		if err := <-done; err != nil || len(projector.Troubles()) != 0 {
			t.Errorf("healed: %v, troubles %v", err, projector.Troubles())
		}

		// Somebody else has the partition from now on.
		store.refuses.Store(true)
		ctx, revoke := context.WithCancel(t.Context())
		done = handle(ctx, 1)
		time.Sleep(time.Minute)
		revoke()
		if err := <-done; err == nil || len(projector.Troubles()) != 0 {
			t.Errorf("revoked: %v, troubles %v", err, projector.Troubles())
		}
	})
}
