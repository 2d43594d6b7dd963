package pgstore

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// Stats is what a group's metrics show of the database.
type Stats struct {
	ParkedEvents             int64
	ParkedOldestSeconds      float64 // 0 when nothing is parked
	DeadLetters              []LetterCount
	DeadLettersOldestSeconds float64 // of the ones that wait for somebody; 0 when there are none
	CopiesPending            int64   // dead letters whose newest lap has no copy yet
	CopiesOldestSeconds      float64 // 0 when there is none
	GapsOverdue              int64   // orders that wait for a missing version for longer than the deadline
	DeadLettersOverdue       int64
	Held                     HeldStats
	Watermarks               []WatermarkAge
}

// LetterCount counts the dead letters of one status and reason.
type LetterCount struct {
	Status  string `json:"status"`
	Reason  string `json:"reason"`
	Letters int64  `json:"letters"`
}

// WatermarkAge is how long ago a partition's watermark advanced, by the
// database's clock.
type WatermarkAge struct {
	KafkaTopic     string
	KafkaPartition int32
	Seconds        float64
}

// Stats reads a group's numbers. Its cost grows with the parked events,
// the dead letters and the held records, not with the orders.
func (r *Reader) Stats(ctx context.Context, group string) (Stats, error) {
	type totals struct {
		ParkedEvents             int64
		ParkedOldestSeconds      float64
		DeadLettersOldestSeconds float64
		GapsOverdue              int64
		DeadLettersOverdue       int64
	}
	type copies struct {
		Pending       int64
		OldestSeconds float64
	}
	var stats Stats
	err := r.snapshot(ctx, func(tx pgx.Tx) error {
		sums, err := query[totals](ctx, tx, "parked_events", `
			SELECT count(*) AS parked_events,
			       coalesce(extract(epoch FROM clock_timestamp() - min(parked_at)), 0)::float8 AS parked_oldest_seconds,
			       coalesce((SELECT extract(epoch FROM clock_timestamp() - min(first_failed_at)) FROM dead_letters
			                 WHERE consumer_group = $1 AND status IN ('open', 'exhausted')), 0)::float8 AS dead_letters_oldest_seconds,
			       (SELECT count(*) FROM gaps WHERE overdue) AS gaps_overdue,
			       (SELECT count(*) FROM dead_letters l CROSS JOIN operator_deadlines d
			        WHERE l.consumer_group = $1 AND l.status IN ('open', 'exhausted') AND coalesce(l.due_at, l.first_failed_at + d.letter) < now())
			           AS dead_letters_overdue
			FROM parked_events WHERE consumer_group = $1`, group)
		if err != nil {
			return err
		}
		stats.ParkedEvents, stats.ParkedOldestSeconds = sums[0].ParkedEvents, sums[0].ParkedOldestSeconds
		stats.DeadLettersOldestSeconds = sums[0].DeadLettersOldestSeconds
		stats.GapsOverdue, stats.DeadLettersOverdue = sums[0].GapsOverdue, sums[0].DeadLettersOverdue
		waiting, err := query[copies](ctx, tx, "letter_copies", `
			SELECT count(*) AS pending, coalesce(extract(epoch FROM clock_timestamp() - min(wanted_at)), 0)::float8 AS oldest_seconds
			FROM letter_copies WHERE consumer_group = $1 AND copied_attempts < attempts`, group)
		if err != nil {
			return err
		}
		stats.CopiesPending, stats.CopiesOldestSeconds = waiting[0].Pending, waiting[0].OldestSeconds
		stats.DeadLetters, err = query[LetterCount](ctx, tx, "dead_letters",
			`SELECT status, reason, count(*) AS letters FROM dead_letters WHERE consumer_group = $1 GROUP BY status, reason`, group)
		if err != nil {
			return err
		}
		if stats.Held, err = readHeldStats(ctx, tx, group); err != nil {
			return err
		}
		// A recreated topic leaves the old one's watermarks behind: the newest counts.
		stats.Watermarks, err = query[WatermarkAge](ctx, tx, "projection_watermarks", `
			SELECT DISTINCT ON (kafka_topic, kafka_partition) kafka_topic, kafka_partition,
			       extract(epoch FROM clock_timestamp() - updated_at)::float8 AS seconds
			FROM projection_watermarks WHERE consumer_group = $1
			ORDER BY kafka_topic, kafka_partition, updated_at DESC`, group)
		return err
	})
	return stats, err
}

// letterStatuses and letterReasons are what the table's constraints allow.
var (
	letterStatuses = [...]string{"open", "redriven", "superseded", "discarded", "exhausted"}
	letterReasons  = [...]string{"invalid", "conflict", "unsupported", "illegal"}
)

// AllDeadLetters returns a count for every status and reason, also where it
// is zero: a metric that appears with its first letter is no base for a rate.
func (s Stats) AllDeadLetters() []LetterCount {
	counts := make(map[LetterCount]int64, len(s.DeadLetters))
	for _, l := range s.DeadLetters {
		counts[LetterCount{Status: l.Status, Reason: l.Reason}] = l.Letters
	}
	all := make([]LetterCount, 0, len(letterStatuses)*len(letterReasons))
	for _, status := range letterStatuses {
		for _, reason := range letterReasons {
			all = append(all, LetterCount{status, reason, counts[LetterCount{Status: status, Reason: reason}]})
		}
	}
	return all
}
