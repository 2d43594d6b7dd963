package kafkaio

import (
	"context"
	"log/slog"
)

// TokenSource gives tests the tokens of a configuration.
func TokenSource(c OAuthConfig, logger *slog.Logger) func(context.Context) (string, error) {
	return c.source(logger).token
}

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }
