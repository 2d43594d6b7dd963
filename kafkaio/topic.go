package kafkaio

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/orderprojector/orderprojector/projection"
)

// lookupTopic asks the cluster for a topic's identity and partition count. It
// goes past the client's cache. The error is errTopicMissing if the topic does
// not exist.
func lookupTopic(ctx context.Context, client *kgo.Client, topic string) (projection.TopicID, int, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	req := kmsg.NewPtrMetadataRequest()
	t := kmsg.NewMetadataRequestTopic()
	t.Topic = kmsg.StringPtr(topic)
	req.Topics = append(req.Topics, t)
	req.AllowAutoTopicCreation = false
	resp, err := req.RequestWith(ctx, client)
	if err != nil {
		return projection.TopicID{}, 0, fmt.Errorf("looking up topic %s: %w", topic, err)
	}
	if len(resp.Topics) != 1 {
		return projection.TopicID{}, 0, fmt.Errorf("looking up topic %s: the broker answered for %d topics", topic, len(resp.Topics))
	}
	switch err := kerr.ErrorForCode(resp.Topics[0].ErrorCode); {
	case errors.Is(err, kerr.UnknownTopicOrPartition):
		return projection.TopicID{}, 0, fmt.Errorf("%w: %s", errTopicMissing, topic)
	case errors.Is(err, kerr.TopicAuthorizationFailed):
		return projection.TopicID{}, 0, fmt.Errorf("looking up topic %s: %w (grant DESCRIBE and READ on the topic)", topic, err)
	case err != nil:
		return projection.TopicID{}, 0, fmt.Errorf("looking up topic %s: %w", topic, err)
	}
	return resp.Topics[0].TopicID, len(resp.Topics[0].Partitions), nil
}

// checkTopicConfig refuses a compacted topic and warns about retention. The
// topic is the journal: the projection keeps coordinates, not payloads.
func checkTopicConfig(ctx context.Context, adm *kadm.Client, topic string, logger *slog.Logger) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	configs, err := adm.DescribeTopicConfigs(ctx, topic)
	var config kadm.ResourceConfig
	if err == nil {
		config, err = configs.On(topic, nil)
	}
	if err == nil {
		err = config.Err
	}
	if err != nil {
		var auth *kadm.AuthError
		if errors.As(err, &auth) || errors.Is(err, kerr.TopicAuthorizationFailed) || errors.Is(err, kerr.ClusterAuthorizationFailed) {
			logger.Warn("the topic's configuration cannot be checked", "topic", topic, "error", err,
				"hint", "grant DESCRIBE_CONFIGS on the topic, or see yourself that it is not compacted and keeps its records")
			return nil
		}
		return fmt.Errorf("reading the configuration of topic %s: %w", topic, err)
	}
	value := func(key string) string {
		for _, c := range config.Configs {
			if c.Key == key && c.Value != nil {
				return *c.Value
			}
		}
		return ""
	}
	policy := value("cleanup.policy")
	if strings.Contains(policy, "compact") {
		return fatalf("%w: cleanup.policy of %s is %q, so Kafka removes older events of an order (set it to delete with retention.ms=-1)",
			ErrCompactedTopic, topic, policy)
	}
	for _, key := range []string{"retention.ms", "retention.bytes"} {
		if limit := value(key); limit != "" && limit != "-1" && strings.Contains(policy, "delete") {
			logger.Warn("the topic removes records after some time: the projection cannot be rebuilt from it for ever",
				"topic", topic, key, limit, "hint", "set retention.ms and retention.bytes to -1, or keep another copy; see retention_headroom_records")
		}
	}
	return nil
}
