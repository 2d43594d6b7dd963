package projection

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/bits"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// classed is an error of a known class.
type classed struct{ class Failure }

func (e classed) Error() string { return e.class.String() }

func classOf(err error) Failure {
	if c, ok := isOneOf[classed](err); ok {
		return c.class
	}
	return Transient
}

// pieces is a job of numbers.
type pieces struct {
	bad    map[int]Failure // what fails, alone and with others
	outage int             // so many tries fail first
	total  int

	at       int
	durable  []int
	alone    []int
	tries    int
	suspects bool // errors name the piece
	asked    int  // so many questions come first
	unproved int  // so many times nothing proves a piece to be the cause
}

func (j *pieces) What(n int) string { return fmt.Sprintf("pieces %d to %d", j.at, j.at+n-1) }
func (j *pieces) Left() int         { return j.total - j.at }

func (j *pieces) Try(_ context.Context, n int) error {
	j.tries++
	if j.asked > 0 {
		return errors.New("a question")
	}
	if j.outage > 0 {
		j.outage--
		return classed{Transient}
	}
	for i := j.at; i < j.at+n; i++ {
		if class, bad := j.bad[i]; bad {
			return classed{class}
		}
	}
	for i := j.at; i < j.at+n; i++ {
		j.durable = append(j.durable, i)
	}
	j.at += n
	return nil
}

func (j *pieces) Answer(context.Context, error) (bool, error) {
	if j.asked > 0 {
		j.asked--
		return true, nil
	}
	return false, nil
}

func (j *pieces) Suspect(_ context.Context, n int, _ Failure, _ error) int {
	if !j.suspects {
		return -1
	}
	for i := range n {
		if _, bad := j.bad[j.at+i]; bad && j.outage == 0 {
			return i
		}
	}
	return -1
}

func (j *pieces) Alone(_ context.Context, class Failure, cause error) error {
	if _, bad := j.bad[j.at]; !bad || j.unproved > 0 {
		j.unproved--
		return &NoProofError{cause}
	}
	j.alone = append(j.alone, j.at)
	j.at++
	return nil
}

func testRetrier(base time.Duration) *Retrier {
	return NewRetrier(RetrierConfig{
		Slots: 1, Timeout: time.Minute, Base: base, Cap: base, Classify: classOf, Hint: func(error) string { return "" },
	})
}

// Every piece ends in one place: the good ones are made durable in their order, whatever is among them, and those that fail
// alone are dealt with alone.
func TestEveryPieceOfAJobHasAPlace(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		j := &pieces{
			total: rapid.IntRange(1, 300).Draw(t, "total"), bad: map[int]Failure{}, suspects: rapid.Bool().Draw(t, "suspects"),
			outage: rapid.IntRange(0, 4).Draw(t, "outage"), asked: rapid.IntRange(0, 2).Draw(t, "asked"), unproved: rapid.IntRange(0, 2).Draw(t, "unproved"),
		}
		classes := []Failure{Transient, TooSlow, LostRace, BadData, Unhealthy, Denied, Locked}
		for range rapid.IntRange(0, 8).Draw(t, "how many are bad") {
			j.bad[rapid.IntRange(0, j.total-1).Draw(t, "bad")] = rapid.SampledFrom(classes).Draw(t, "class")
		}
		unproved := j.unproved
		r := testRetrier(time.Nanosecond)
		if err := r.Run(t.Context(), r.Attempts(slog.New(slog.DiscardHandler), TopicPartition{}), j); err != nil {
			t.Fatal(err)
		}
		var good []int
		for i := range j.total {
			if _, bad := j.bad[i]; !bad {
				good = append(good, i)
			}
		}
		if !slices.Equal(j.durable, good) {
			t.Errorf("durable are %v, and not %v", j.durable, good)
		}
		for i, at := range j.alone {
			if _, bad := j.bad[at]; !bad || i > 0 && j.alone[i-1] >= at {
				t.Errorf("alone were %v of %v", j.alone, j.bad)
			}
		}
		if len(j.alone) != len(j.bad) {
			t.Errorf("%d pieces were dealt with alone, and %d are bad", len(j.alone), len(j.bad))
		}
		// Halving finds a piece in as many tries as its number has bits, and so does growing again.
		most := 20 + (len(j.bad)+unproved+1)*(patience+3*bits.Len(uint(j.total)))
		if j.tries > most {
			t.Errorf("%d tries, more than %d, for %d bad pieces of %d", j.tries, most, len(j.bad), j.total)
		}
		if len(r.Troubles()) > 0 {
			t.Errorf("trouble is left: %v", r.Troubles())
		}
	})
}

// A COMMIT without an answer, and failures that pass, say nothing about any piece.
func TestWhatPassesIsNobodysFault(t *testing.T) {
	for _, class := range []Failure{Unanswered, Unconnected, Transient} {
		j := &pieces{total: 100, bad: map[int]Failure{50: class}}
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		r := testRetrier(time.Millisecond)
		if class == Transient {
			j.bad, j.outage = nil, 2*patience
		}
		err := r.Run(ctx, r.Attempts(slog.New(slog.DiscardHandler), TopicPartition{}), j)
		cancel()
		switch {
		case len(j.alone) > 0:
			t.Errorf("%v: piece %v was blamed", class, j.alone)
		case class == Transient && (err != nil || len(j.durable) != 100):
			t.Errorf("after an outage %d pieces are durable: %v", len(j.durable), err)
		case class != Transient && (!errors.Is(err, context.DeadlineExceeded) || len(j.durable) > 0):
			t.Errorf("%v: %v, durable %v", class, err, j.durable)
		}
	}
}

// Limited tries end with the failure itself.
func TestLimitedTriesEnd(t *testing.T) {
	j := &pieces{total: 3, outage: 100, unproved: 100}
	r := testRetrier(time.Nanosecond)
	err := r.Run(t.Context(), r.Limited(slog.New(slog.DiscardHandler), 4), j)
	if class := classOf(err); class != Transient || err == nil || len(r.Troubles()) > 0 {
		t.Errorf("%v, trouble %v", err, r.Troubles())
	}
}
