package projection

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// hangingPieces is a job of pieces of which some hang, in simulated time.
type hangingPieces struct {
	hanging []int
	total   int
	passed  int
	alone   []int
	takes   time.Duration // one piece that does not hang
}

func (p *hangingPieces) What(n int) string { return fmt.Sprintf("%d pieces", n) }
func (p *hangingPieces) Left() int         { return p.total - p.passed }

func (p *hangingPieces) Try(ctx context.Context, n int) error {
	for i := p.passed; i < p.passed+n; i++ {
		takes := p.takes
		if slices.Contains(p.hanging, i) {
			takes = time.Hour
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(takes):
		}
	}
	p.passed += n
	return nil
}

func (p *hangingPieces) Answer(context.Context, error) (bool, error)      { return false, nil }
func (p *hangingPieces) Suspect(context.Context, int, Failure, error) int { return -1 }
func (p *hangingPieces) Alone(_ context.Context, class Failure, cause error) error {
	if class != TooSlow {
		return errors.Join(errors.New("class "+class.String()), cause)
	}
	p.alone = append(p.alone, p.passed)
	p.passed++
	return nil
}

// Several pieces of a batch that hang keep the others waiting for seconds, not for a transaction's deadline each.
func TestPiecesThatHangAreFoundInSeconds(t *testing.T) {
	for name, tc := range map[string]struct {
		takes, most time.Duration
		hanging     []int
	}{
		"one":             {time.Millisecond, 18 * time.Second, []int{40}},
		"three":           {time.Millisecond, 30 * time.Second, []int{7, 40, 63}},
		"a slow database": {700 * time.Millisecond, 5 * time.Minute, []int{3}}, // none but the one that hangs is blamed
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := NewRetrier(RetrierConfig{
					Slots: 1, Timeout: 11 * time.Second, Base: time.Millisecond, Cap: time.Second,
					Classify: func(error) Failure { return Transient }, Hint: func(error) string { return "" },
				})
				p := &hangingPieces{hanging: tc.hanging, total: 64, takes: tc.takes}
				began := time.Now()
				err := r.Run(t.Context(), r.Attempts(slog.New(slog.DiscardHandler), TopicPartition{}), p)
				if took := time.Since(began); err != nil || took > tc.most || !slices.Equal(p.alone, tc.hanging) {
					t.Errorf("%v, after %v, alone %v", err, took, p.alone)
				} else {
					t.Logf("after %v", took)
				}
			})
		})
	}
}
