package kafkaio

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/orderprojector/orderprojector/projection"
)

// ErrGroupActive means that a group has members: only they commit its offsets.
var ErrGroupActive = errors.New("the group has members")

// CommitForGroup commits an offset of a group that has no members. The error is
// ErrGroupActive when it has some; the brokers see to that, not a look beforehand.
func CommitForGroup(ctx context.Context, config ClientConfig, group string, tp projection.TopicPartition, offset int64, logger *slog.Logger) error {
	opts, err := config.Options(logger)
	if err != nil {
		return err
	}
	client, err := kgo.NewClient(opts...)
	if err != nil {
		return fmt.Errorf("creating a kafka client: %w", err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	offsets := make(kadm.Offsets)
	offsets.AddOffset(tp.Topic, tp.Partition, offset, -1)
	answers, err := kadm.NewClient(client).CommitOffsets(ctx, group, offsets)
	if err == nil {
		err = answers.Error()
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, kerr.UnknownMemberID), errors.Is(err, kerr.IllegalGeneration), errors.Is(err, kerr.RebalanceInProgress),
		errors.Is(err, kerr.StaleMemberEpoch), errors.Is(err, kerr.FencedMemberEpoch):
		return fmt.Errorf("%w: %w", ErrGroupActive, err)
	}
	return fmt.Errorf("committing offset %d of %s for group %s: %w", offset, tp, group, err)
}
