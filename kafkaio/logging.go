package kafkaio

import (
	"context"
	"log/slog"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/plugin/kslog"
)

// newClientLogger makes the client library log one level lower than it wants
// to: what is information to a client is detail to an operator, and what
// matters (a group error, a lost partition) is logged here with its meaning.
func newClientLogger(logger *slog.Logger) kgo.Logger {
	return kslog.New(slog.New(quieter{logger.Handler()}).With("component", "kafka-client"))
}

type quieter struct{ slog.Handler }

func quietLevel(l slog.Level) slog.Level { return l - 4 }

func (q quieter) Enabled(ctx context.Context, l slog.Level) bool {
	return q.Handler.Enabled(ctx, quietLevel(l))
}

func (q quieter) Handle(ctx context.Context, r slog.Record) error {
	r.Level = quietLevel(r.Level)
	if r.Message == "group manage loop errored" {
		// The session is told of it too, and says it less often.
		if r.Level = slog.LevelDebug; !q.Handler.Enabled(ctx, r.Level) {
			return nil
		}
	}
	return q.Handler.Handle(ctx, r)
}

func (q quieter) WithAttrs(attrs []slog.Attr) slog.Handler {
	return quieter{q.Handler.WithAttrs(attrs)}
}
func (q quieter) WithGroup(name string) slog.Handler { return quieter{q.Handler.WithGroup(name)} }
