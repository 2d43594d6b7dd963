package lettercopy_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/orderprojector/orderprojector/projection/lettercopy"
)

// fakeQueue holds letters that are due, in memory.
type fakeQueue struct {
	mu       sync.Mutex
	due      []*lettercopy.Letter
	settled  []lettercopy.Receipt
	pauses   []time.Duration
	err      error // of the next question
	sessions int
}

func (q *fakeQueue) open(context.Context) (lettercopy.Queue, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.sessions++
	return q, nil
}

func (q *fakeQueue) Due(_ context.Context, maxLetters int, _ int64) ([]*lettercopy.Letter, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := q.err; err != nil {
		q.err = nil
		return nil, err
	}
	return q.due[:min(maxLetters, len(q.due))], nil
}

func (q *fakeQueue) Settle(ctx context.Context, receipts []lettercopy.Receipt) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.settled = append(q.settled, receipts...)
	q.due = q.due[len(receipts):]
	return ctx.Err()
}

func (q *fakeQueue) Postpone(_ context.Context, receipts []lettercopy.Receipt, pauses []time.Duration) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.pauses = append(q.pauses, pauses...)
	q.due = q.due[len(receipts):]
	return nil
}

func (q *fakeQueue) Close() {}

// topicFunc is a topic.
type topicFunc func(ctx context.Context, letters []*lettercopy.Letter) error

func (f topicFunc) Send(ctx context.Context, letters []*lettercopy.Letter) []lettercopy.Receipt {
	err := f(ctx, letters)
	var receipts []lettercopy.Receipt
	for _, l := range letters {
		receipts = append(receipts, lettercopy.Receipt{Letter: l, Form: lettercopy.Whole, Err: err})
	}
	return receipts
}

func letters(n int) (all []*lettercopy.Letter) {
	for i := range n {
		all = append(all, &lettercopy.Letter{ID: int64(i + 1), CopyFailures: i})
	}
	return all
}

func publish(t *testing.T, q *fakeQueue, topic topicFunc) (reg *prometheus.Registry, stop func()) {
	t.Helper()
	reg = prometheus.NewRegistry()
	p, err := lettercopy.NewPublisher(lettercopy.Config{Open: q.open, Topic: topic, Registerer: reg, MaxLetters: 2})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.Run(ctx)
	}()
	return reg, func() { cancel(); <-done }
}

func TestRoundsFollowEachOtherWhileLettersAreDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &fakeQueue{due: letters(5)}
		_, stop := publish(t, q, func(context.Context, []*lettercopy.Letter) error { return nil })
		synctest.Wait() // no time passes
		if len(q.settled) != 5 {
			t.Errorf("%d letters are settled", len(q.settled))
		}
		q.mu.Lock()
		q.due = letters(1)
		q.mu.Unlock()
		time.Sleep(time.Second)
		synctest.Wait()
		if len(q.settled) != 6 {
			t.Errorf("%d letters are settled", len(q.settled))
		}
		stop()
	})
}

func TestTheTopicsFailureIsWaitedOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &fakeQueue{due: letters(3)}
		tries := 0
		missing := &lettercopy.Failure{Class: lettercopy.TopicMissing, Err: errors.New("gone")}
		reg, stop := publish(t, q, func(context.Context, []*lettercopy.Letter) error {
			if tries++; tries < 10 {
				return missing
			}
			return nil
		})
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if len(q.settled) != 3 || q.sessions != 1 {
			t.Errorf("%d letters are settled in %d sessions", len(q.settled), q.sessions)
		}
		err := testutil.GatherAndCompare(reg, strings.NewReader(`
			# HELP orderprojector_dead_letter_copies_failures_total Failed attempts to copy dead letters to their topic, by class.
			# TYPE orderprojector_dead_letter_copies_failures_total counter
			orderprojector_dead_letter_copies_failures_total{class="broker"} 0
			orderprojector_dead_letter_copies_failures_total{class="database"} 0
			orderprojector_dead_letter_copies_failures_total{class="forbidden"} 0
			orderprojector_dead_letter_copies_failures_total{class="refused"} 0
			orderprojector_dead_letter_copies_failures_total{class="topic_missing"} 9
		`), "orderprojector_dead_letter_copies_failures_total")
		if err != nil {
			t.Error(err)
		}
		stop()
	})
}

func TestARefusedLetterWaitsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &fakeQueue{due: letters(2)}
		_, stop := publish(t, q, func(context.Context, []*lettercopy.Letter) error { return errors.New("no key") })
		synctest.Wait()
		stop()
		if len(q.pauses) != 2 || q.pauses[1] <= q.pauses[0] {
			t.Errorf("pauses %v", q.pauses)
		}
	})
}

func TestALostSessionIsOpenedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &fakeQueue{due: letters(2), err: errors.New("connection reset")}
		_, stop := publish(t, q, func(context.Context, []*lettercopy.Letter) error { return nil })
		time.Sleep(time.Minute)
		stop()
		if q.sessions != 2 || len(q.settled) != 2 {
			t.Errorf("%d sessions, %d letters are settled", q.sessions, len(q.settled))
		}
	})
}

// What is on its way when the program stops is recorded: it would be copied twice.
func TestARoundInFlightFinishesWithinTheGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &fakeQueue{due: letters(2)}
		sent := make(chan struct{})
		_, stop := publish(t, q, func(ctx context.Context, _ []*lettercopy.Letter) error {
			close(sent)
			select {
			case <-ctx.Done():
				return &lettercopy.Failure{Class: lettercopy.Broker, Err: ctx.Err()}
			case <-time.After(2 * time.Second):
				return nil
			}
		})
		<-sent
		stop()
		if len(q.settled) != 2 {
			t.Errorf("%d letters are settled", len(q.settled))
		}
	})
	synctest.Test(t, func(t *testing.T) {
		q := &fakeQueue{due: letters(2)}
		sent := make(chan struct{})
		_, stop := publish(t, q, func(ctx context.Context, _ []*lettercopy.Letter) error {
			close(sent)
			<-ctx.Done()
			return &lettercopy.Failure{Class: lettercopy.Broker, Err: ctx.Err()}
		})
		<-sent
		began := time.Now()
		stop()
		if took := time.Since(began); took > 3*time.Second || len(q.settled) > 0 {
			t.Errorf("it stopped after %s, with %d letters settled", took, len(q.settled))
		}
	})
}
