package kafkaio

import "time"

// An openTransaction holds a partition back: nothing from its first record on
// can be read before it ends. The zero value says that there is none.
type openTransaction struct {
	offset  int64     // its first record, which is the last stable offset
	offsets int64     // from there to the high watermark
	since   time.Time // when this member first saw it
}

// listed takes the bounds of a listing.
func (t *openTransaction) listed(b logBounds, now time.Time) {
	switch {
	case b.high == b.end:
		*t = openTransaction{}
	case t.offsets > 0 && t.offset == b.end:
		t.offsets = b.high - b.end
	default:
		*t = openTransaction{offset: b.end, offsets: b.high - b.end, since: now}
	}
}

// passed ends a transaction of which records were read.
func (t *openTransaction) passed(position int64) {
	if t.offsets > 0 && position > t.offset {
		*t = openTransaction{}
	}
}

// listed takes the bounds of a listing, and logs a transaction that is open for
// long, once, and its end.
func (w *worker) listed(b logBounds) {
	ended, news := w.state.listed(b, w.session.cfg.StallLimit/6)
	if ended.offsets > 0 {
		w.logger.Info("the transaction that held the partition back has ended", "transaction_offset", ended.offset,
			"open", time.Since(ended.since).Round(time.Millisecond))
	}
	if news.offsets > 0 {
		w.logger.Warn("records wait behind an open transaction", "offsets", news.offsets, "transaction_offset", news.offset,
			"since", news.since, "hint", transactionHint)
	}
}

// transactionHint says how to find out whose transaction it is.
const transactionHint = "kafka-transactions.sh describe-producers names its producer, abort ends it: see Open transaction in docs/operations.md"
