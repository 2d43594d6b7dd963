package kafkaio

import (
	"context"
	"log/slog"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/plugin/kslog"
)

// newClientLogger makes the client library log two levels lower than it wants
// to: while a broker is away it warns several times a second. What matters to
// an operator (a lost connection, a group error, a lost partition) is logged
// here, once and with its meaning.
func newClientLogger(logger *slog.Logger) kgo.Logger {
	return kslog.New(slog.New(quieter{logger.Handler()}).With("component", "kafka-client"))
}

type quieter struct{ slog.Handler }

func quietLevel(l slog.Level) slog.Level { return l - 8 }

func (q quieter) Enabled(ctx context.Context, l slog.Level) bool {
	return q.Handler.Enabled(ctx, quietLevel(l))
}

func (q quieter) Handle(ctx context.Context, r slog.Record) error {
	r.Level = quietLevel(r.Level)
	return q.Handler.Handle(ctx, r)
}

func (q quieter) WithAttrs(attrs []slog.Attr) slog.Handler {
	return quieter{q.Handler.WithAttrs(attrs)}
}
func (q quieter) WithGroup(name string) slog.Handler { return quieter{q.Handler.WithGroup(name)} }
