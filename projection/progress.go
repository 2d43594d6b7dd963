package projection

import (
	"context"
	"fmt"
	"log/slog"
)

// ProgressTx is the part of a transaction that keeps the progress of a group in
// one log. Its methods are those of Tx.
type ProgressTx interface {
	Watermark(ctx context.Context, key WatermarkKey) (w Watermark, found bool, err error)
	InsertWatermark(ctx context.Context, key WatermarkKey, nextOffset int64) error
	OtherTopicIDs(ctx context.Context, key WatermarkKey) ([]TopicID, error)
	ForgetSkip(ctx context.Context, key WatermarkKey) error
	AdvanceWatermark(ctx context.Context, key WatermarkKey, nextOffset int64, counts Counts, lost int64) error
}

// Progress is what a member knows of a partition's progress in the database. It
// is used by one goroutine at a time.
type Progress struct {
	key        WatermarkKey
	position   int64 // next offset; everything below is durable as far as the member knows
	generation int64
	// seen is the highest watermark the member has seen. The member may remember rows
	// of that time, which matters while it reads again below it: a
	// database that fell behind it lost commits that the member still believes in.
	seen int64
}

// Key names the watermark.
func (p *Progress) Key() WatermarkKey { return p.key }

// Position is the next offset: everything below is durable, as far as the member knows.
func (p *Progress) Position() int64 { return p.position }

// Seen is the highest watermark that the member has seen.
func (p *Progress) Seen() int64 { return p.seen }

// Advanced notes that a transaction has committed that made everything below next durable.
func (p *Progress) Advanced(next int64) { p.position, p.seen = next, max(p.seen, next) }

// Fence locks the watermark, so that a late writer waits and then sees the truth, and
// refuses to go on with a *RewindError when the database holds less than the member
// believes: less than begin, where the work at hand begins, or than it has seen.
func (p *Progress) Fence(ctx context.Context, tx ProgressTx, begin int64) (Watermark, error) {
	mark, found, err := tx.Watermark(ctx, p.key)
	if err != nil {
		return mark, fmt.Errorf("locking the watermark: %w", err)
	}
	switch {
	case !found:
		return mark, &RewindError{To: NoOffset, Reason: "the database has no watermark for the partition any more"}
	case mark.NextOffset < max(begin, p.seen):
		return mark, &RewindError{To: mark.NextOffset, Reason: fmt.Sprintf(
			"the database is at offset %d, and was at %d before: commits were lost", mark.NextOffset, max(begin, p.seen))}
	case mark.Generation != p.generation:
		return mark, &RewindError{To: mark.NextOffset, Reason: fmt.Sprintf(
			"the tables were exchanged (generation %d, the member knew %d)", mark.Generation, p.generation)}
	}
	p.seen = mark.NextOffset
	return mark, nil
}

// Beginning is where a member begins with a partition, by what Kafka and the database say of it.
type Beginning struct {
	Start
	Progress Progress
	// Ahead is how far the committed offset is ahead of the watermark; it is not followed.
	Ahead int64

	assignment Assignment
	recreated  *TopicID // the topic's old ID, when it was created anew
}

// Begin makes sure that the partition has a watermark, and works out where to begin: at the
// older of that and the group's committed offset. Reading again is free, so an
// expired group or a restored database heals itself.
func Begin(ctx context.Context, tx ProgressTx, a Assignment) (Beginning, error) {
	key := WatermarkKey{Group: a.Group, TopicPartition: a.TopicPartition}
	mark, found, err := tx.Watermark(ctx, key)
	if err != nil {
		return Beginning{}, fmt.Errorf("reading the watermark: %w", err)
	}
	others, err := tx.OtherTopicIDs(ctx, key)
	if err != nil {
		return Beginning{}, fmt.Errorf("reading earlier watermarks: %w", err)
	}
	if !found {
		if err := tx.InsertWatermark(ctx, key, a.LogStart); err != nil {
			return Beginning{}, fmt.Errorf("inserting the watermark: %w", err)
		}
		if mark, _, err = tx.Watermark(ctx, key); err != nil {
			return Beginning{}, fmt.Errorf("reading the watermark: %w", err)
		}
	} else if mark.SkipTo > 0 && a.Committed != NoOffset && !mark.skipped(a.Committed) {
		if err := tx.ForgetSkip(ctx, key); err != nil { // there is a newer commit
			return Beginning{}, fmt.Errorf("ending a skip: %w", err)
		}
	}
	b := Beginning{
		assignment: a,
		Start:      Start{Offset: mark.NextOffset, Watermark: mark.NextOffset, CommitAbove: a.Committed},
	}
	if len(others) > 0 && (!found || a.Committed > a.LogEnd) {
		b.recreated = &others[0]
		b.CommitAbove = NoOffset
	} else if a.Committed != NoOffset && !mark.skipped(a.Committed) {
		// What the log no longer holds cannot be read again, and below the watermark
		// it does not have to be: that is no loss.
		b.Offset = min(b.Offset, max(a.Committed, a.LogStart))
	}
	b.Ahead = max(0, b.CommitAbove-mark.NextOffset)
	b.Progress = Progress{key: key, position: b.Offset, seen: mark.NextOffset, generation: mark.Generation}
	return b, nil
}

// Report logs what an operator should know of the beginning.
func (b *Beginning) Report(log *slog.Logger) {
	if b.recreated != nil {
		log.Warn("the topic was created anew: watermarks and commits of the old one are not used",
			"topic_id", b.assignment.TopicID.String(), "old_topic_id", b.recreated.String(), "committed", b.assignment.Committed, "start", b.Offset)
	}
	if b.Ahead > 0 {
		log.Error("the group's committed offset is ahead of what is durable in the database; it is not followed",
			"committed", b.assignment.Committed, "watermark", b.Watermark,
			"hint", "somebody moved the group's offsets, or the database was restored; the records between are read again")
	}
}

// skipped reports whether a committed offset is from before an operator's skip.
func (w *Watermark) skipped(committed int64) bool {
	return w.SkipTo > 0 && w.SkipFrom <= committed && committed < w.SkipTo
}
