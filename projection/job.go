package projection

import (
	"context"
	"time"
)

// Job is a row of pieces that are to be made durable: together where that is possible, one by one where it is not.
// A job is used by one goroutine at a time.
type Job interface {
	// What names the next n pieces in logs and in health.
	What(n int) string
	// Left is how many pieces the next transaction may take; 0 ends the job.
	Left() int
	// Try makes the next n pieces durable in one transaction. When Try returns nil, the pieces are passed.
	Try(ctx context.Context, n int) error
	// Answer reads what err asks for, such as an older record to compare with. asked is false when err asks for nothing.
	Answer(ctx context.Context, err error) (asked bool, failed error)
	// Suspect is the first of the next n pieces that is known to be the cause of err, or -1.
	Suspect(ctx context.Context, n int, class Failure, err error) int
	// Alone gives the next piece, which fails alone, another place: a dead letter, or the held records. When Alone
	// returns nil, the piece is passed. An error means that nothing proves the piece to be the cause.
	Alone(ctx context.Context, class Failure, cause error) error
}

// endError ends a job at once: another try would not help.
type endError struct{ error }

func (e *endError) Unwrap() error { return e.error }

// ended returns the failure that ended a job, as it was.
func ended(err error) error {
	if end, ok := isOneOf[*endError](err); ok {
		return end.error
	}
	return err
}

const (
	// narrowTimeout is the deadline of a transaction while one slow piece is looked for: the others must not wait for long.
	narrowTimeout = time.Second
	// patience is how many failures that usually pass come before the search for one piece as the cause.
	patience = 3
)

// Run works a job off. A failure that passes is waited out. Any other failure narrows the work down to one piece, which
// Job.Alone deals with. Run ends when nothing is left, with ctx's cause, with a *RewindError or *HaltError, or
// with the last failure when tries are limited.
func (r *Retrier) Run(ctx context.Context, tries *Attempts, job Job) error {
	var s search
	for left := job.Left(); left > 0; left = job.Left() {
		n := s.next(left)
		began := time.Now()
		err := r.within(ctx, s.timeout(r.cfg.Timeout), func(ctx context.Context) error { return job.Try(ctx, n) })
		if err == nil {
			tries.Over()
			s.passed(n, time.Since(began))
			continue
		}
		if final(err) {
			tries.Over()
			return err
		}
		what := job.What(n)
		if asked, failed := job.Answer(ctx, err); asked {
			if failed == nil {
				continue
			}
			err = failed
		} else if class, at := r.suspect(ctx, job, n, err); at >= 0 || ctx.Err() == nil && s.begins(class, tries) {
			if at > 0 || at < 0 && n > 1 {
				tries.narrow(ctx, what, class, err, !s.searching())
				s.failed(n, at)
				continue
			}
			alone := job.Alone(ctx, class, err)
			if alone == nil {
				tries.Over()
				s.alone()
				continue
			}
			if final(alone) {
				tries.Over()
				return alone
			}
			s.stop()
		}
		if err := tries.Pause(ctx, what, err); err != nil {
			return err
		}
	}
	return nil
}

func (r *Retrier) suspect(ctx context.Context, job Job, n int, err error) (Failure, int) {
	class := r.Classify(err)
	if ctx.Err() != nil {
		return class, -1
	}
	return class, job.Suspect(ctx, n, class, err)
}

// search looks for the first failing piece of a job by halving. A piece that is found in the middle costs
// about as many transactions as the number of pieces has bits.
type search struct {
	size    int // pieces of the next try; 0 for as many as there are
	failing int // the first so many pieces hold one that fails; 0 when that is not known
	// longest is how long a transaction took that made pieces durable, at most. It tells a piece that hangs from a slow database.
	longest time.Duration
}

func (s *search) searching() bool { return s.failing > 0 }

func (s *search) next(left int) int {
	if s.size == 0 {
		return left
	}
	return min(left, s.size)
}

// timeout is shorter during a search, so that a piece that hangs is found in seconds. It stays short behind a search while
// transactions are fast: the next piece that hangs is found in seconds, too.
func (s *search) timeout(full time.Duration) time.Duration {
	switch {
	case s.searching():
		return min(full, narrowTimeout)
	case s.longest > 0:
		return min(full, max(narrowTimeout, 10*s.longest))
	}
	return full
}

// begins reports whether a failure of that class begins or continues the search for one piece.
func (s *search) begins(class Failure, tries *Attempts) bool {
	switch class {
	case Unanswered, Unconnected:
		return false
	case Transient, LostRace, Locked:
		return s.searching() || tries.failures+1 >= patience || tries.limit == 1
	}
	return true
}

// failed takes that the first n pieces fail together; at is the one to blame, or negative.
func (s *search) failed(n, at int) {
	s.failing, s.size = n, n/2
	if at > 0 {
		s.failing, s.size = at+1, at
	}
}

// passed takes that n pieces were made durable, and how long that took.
func (s *search) passed(n int, took time.Duration) {
	if s.size > 0 {
		s.longest = max(s.longest, took)
	}
	switch {
	case s.size == 0:
	case s.failing > n:
		s.failing -= n
		s.size = (s.failing + 1) / 2
	default: // nothing fails any more, or nothing is known to
		s.failing, s.size = 0, 2*max(n, s.size)
	}
}

// alone takes that the first piece was dealt with.
func (s *search) alone() { s.failing, s.size = 0, 1 }

// stop ends a search without a result: the failure is not that of one piece.
func (s *search) stop() { s.failing, s.size = 0, 1 }
