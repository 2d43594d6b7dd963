package kafkaio

import (
	"context"
	"log/slog"
	"time"
)

// TokenSource gives tests the tokens of a configuration.
func TokenSource(c OAuthConfig, logger *slog.Logger) func(context.Context) (string, error) {
	return c.source(logger).token
}

// Impatient makes a reader believe after so long that a partition is gone.
func (r *RecordReader) Impatient(goneAfter time.Duration) { r.goneAfter = goneAfter }

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }
