package app

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/config"
	"github.com/orderprojector/orderprojector/projection"
)

const (
	letterLogInterval = time.Second
	letterIDTimeout   = time.Second // of the question which ID an example has
)

// letterLog tells of dead letters: one line per reason and minute, with an example.
type letterLog struct {
	group  string
	digest *projection.LetterDigest
	// find returns the ID of the letter of a record.
	find   func(ctx context.Context, group string, tp projection.TopicPartition, offset int64) (int64, error)
	logger *slog.Logger
}

// run writes lines until ctx ends.
func (l *letterLog) run(ctx context.Context) {
	ticker := time.NewTicker(letterLogInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			l.write(ctx, false)
		}
	}
}

// write writes the lines that are due, or what is left at the end of the program.
func (l *letterLog) write(ctx context.Context, all bool) {
	for _, n := range l.digest.Due(all) {
		attrs := []any{
			"reason", n.Reason.String(), "letters", n.Letters, "order_id", n.OrderID, "topic", n.Topic, "partition", n.Partition, "offset", n.Offset, "detail", n.Detail,
		}
		l.logger.Warn("records became dead letters; the first of them", append(attrs, "hint", l.hint(ctx, n))...)
	}
}

// hint names the command that shows the example.
func (l *letterLog) hint(ctx context.Context, n projection.LetterNote) string {
	group := ""
	if l.group != config.Default().Kafka.Group {
		group = " --group " + l.group
	}
	ctx, cancel := context.WithTimeout(ctx, letterIDTimeout)
	defer cancel()
	if id, err := l.find(ctx, l.group, n.TopicPartition, n.Offset); err == nil {
		return fmt.Sprintf("orderprojector dlq show %d%s", id, group)
	}
	return fmt.Sprintf("orderprojector dlq list --reason %s%s", n.Reason, group)
}
